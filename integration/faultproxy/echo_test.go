package faultproxy_test

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

const (
	toServer = faultproxy.ToServer
	toClient = faultproxy.ToClient
	patience = 10 * time.Second
	// quiet is how long nothing may come where nothing is to come. Too short a time can only hide
	// a fault, never make a right proxy fail.
	quiet = 50 * time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks)) }

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// server answers with what it gets and keeps a copy of it.
type server struct {
	listener net.Listener
	work     sync.WaitGroup
	mu       sync.Mutex
	got      []byte
	conns    []net.Conn
}

func echo(t *testing.T) *server { return serve(t, "127.0.0.1:0") }

func serve(t *testing.T, addr string) *server {
	listener, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	s := &server{listener: listener}
	s.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			s.work.Go(func() { s.answer(conn) })
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *server) answer(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	buf := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buf)
		s.mu.Lock()
		s.got = append(s.got, buf[:n]...)
		s.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (s *server) stop() {
	_ = s.listener.Close()
	s.mu.Lock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

func (s *server) saw() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.got)
}

func (s *server) addr() string { return s.listener.Addr().String() }

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	conn, err := net.Dial("tcp", p.Endpoint())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	_, err := io.WriteString(conn, text)
	require.NoError(t, err)
}

func expect(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, len(text))
	_, err := io.ReadFull(conn, buf)
	require.NoError(t, err)
	require.Equal(t, text, string(buf))
}

func expectNothing(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(quiet)))
	n, err := conn.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it must not end either")
}

func expectEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	var timeout net.Error
	if e, ok := err.(net.Error); ok {
		timeout = e
		require.False(t, timeout.Timeout(), "the connection still lives")
	}
}

// expectRefusal wants a new connection to be reset, be it before or after the dialler sees it.
func expectRefusal(t *testing.T, p *faultproxy.Proxy) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Endpoint())
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	expectEnd(t, conn)
}
