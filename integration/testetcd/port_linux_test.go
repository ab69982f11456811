package testetcd_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// bindExclusively takes a port as somebody would who knows nothing of the member.
func bindExclusively(t *testing.T, endpoint string) error {
	addr, err := net.ResolveTCPAddr("tcp4", endpoint)
	require.NoError(t, err)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Close(fd)) }()
	return syscall.Bind(fd, &syscall.SockaddrInet4{Port: addr.Port, Addr: [4]byte{127, 0, 0, 1}})
}

// No client connects in this test: the remains of a closed connection occupy a port, too.
func TestPortStaysWithItsStoppedMemberUntilClose(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.FastTicks)
	m := c.Member(0)
	m.Stop()
	require.ErrorIs(t, bindExclusively(t, m.Endpoint()), syscall.EADDRINUSE)
	_, err := net.Dial("tcp", m.Endpoint())
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "a stopped member looks dead")
	require.NoError(t, c.Close())
	require.NoError(t, bindExclusively(t, m.Endpoint()))
}
