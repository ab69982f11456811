package testetcd

import (
	"fmt"
	"syscall"
)

// reservedPort is a port of the loopback interface that is ours until close, also while no
// server listens on it (before the start, and between Stop and Restart).
//
// A socket that is bound and does not listen keeps the kernel from giving its port to anybody who
// asks for port 0 or opens a connection. A listener that names the port, and has SO_REUSEADDR set
// as all listeners of Go have, gets it all the same. Who connects meanwhile is refused, as by a
// dead server.
type reservedPort struct {
	number int
	fd     int
}

func reservePort() (*reservedPort, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("testetcd: no socket to reserve a port with: %w", err)
	}
	port, err := bindAnyPort(fd)
	if err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("testetcd: cannot reserve a port of 127.0.0.1: %w", err)
	}
	return &reservedPort{number: port, fd: fd}, nil
}

func bindAnyPort(fd int) (int, error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	addr, ok := bound.(*syscall.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("bound to an address of type %T", bound)
	}
	return addr.Port, nil
}

func (p *reservedPort) close() { _ = syscall.Close(p.fd) }
