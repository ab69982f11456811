//go:build !linux

package testetcd

import (
	"fmt"
	"net"
)

// reservedPort is a port of the loopback interface that was free a moment ago. Nothing keeps
// others from taking it before a server listens; Start then tries again with other ports.
type reservedPort struct{ number int }

func reservePort() (*reservedPort, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("testetcd: cannot find a free port of 127.0.0.1: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return &reservedPort{number: listener.Addr().(*net.TCPAddr).Port}, nil
}

func (p *reservedPort) close() {}
