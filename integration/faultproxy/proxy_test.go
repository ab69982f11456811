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

func TestBytesPassUnchangedAndSoDoesTheEnd(t *testing.T) {
	t.Parallel()
	s := echo(t)
	p := faultproxy.Before(t, s.addr())
	conn := dial(t, p)
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(i * 7 >> 3)
	}
	go func() {
		_, _ = conn.Write(big)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, len(big), len(got))
	require.Equal(t, big, got)
	require.NoError(t, p.WaitConnections(within(t, patience), 0))
	require.EqualValues(t, len(big), p.Forwarded(toServer))
	require.EqualValues(t, len(big), p.Forwarded(toClient))
}

func TestHeldRequestReachesTheServerOnlyAfterResume(t *testing.T) {
	t.Parallel()
	s := echo(t)
	p := faultproxy.Before(t, s.addr())
	conn := dial(t, p)
	send(t, conn, "a")
	expect(t, conn, "a")

	p.Hold(toServer)
	send(t, conn, "bc")
	require.NoError(t, p.WaitHeld(within(t, patience), toServer, 2))
	expectNothing(t, conn)
	require.Equal(t, "a", s.saw())

	p.Resume(toServer)
	expect(t, conn, "bc")
	require.NoError(t, p.WaitForwarded(within(t, patience), toServer, 3))
}

func TestHeldAnswerWaitsWhileTheRequestIsDone(t *testing.T) {
	t.Parallel()
	s := echo(t)
	p := faultproxy.Before(t, s.addr())
	p.Hold(toClient) // before there is a connection
	conn := dial(t, p)
	send(t, conn, "a")
	require.NoError(t, p.WaitForwarded(within(t, patience), toServer, 1))
	require.NoError(t, p.WaitHeld(within(t, patience), toClient, 1))
	require.Equal(t, "a", s.saw())
	expectNothing(t, conn)
	p.Resume()
	expect(t, conn, "a")
}

func TestHoldExistingLeavesNewConnectionsAlone(t *testing.T) {
	t.Parallel()
	s := echo(t)
	p := faultproxy.Before(t, s.addr())
	old := dial(t, p)
	send(t, old, "a")
	expect(t, old, "a")
	p.HoldExisting(toServer)
	send(t, old, "late")
	require.NoError(t, p.WaitHeld(within(t, patience), toServer, 4))

	fresh := dial(t, p)
	send(t, fresh, "b")
	expect(t, fresh, "b")
	require.Equal(t, "ab", s.saw())

	require.NoError(t, old.Close(), "what is held survives its sender")
	p.Resume()
	require.Eventually(t, func() bool { return s.saw() == "ablate" }, patience, time.Millisecond)
	require.NoError(t, p.WaitConnections(within(t, patience), 1))
}

func TestDeliverLetsJustSoManyBytesThrough(t *testing.T) {
	t.Parallel()
	s := echo(t)
	p := faultproxy.Before(t, s.addr())
	conn := dial(t, p)
	p.Hold(toServer)
	send(t, conn, "request")
	send(t, conn, "+cancel")
	require.NoError(t, p.WaitHeld(within(t, patience), toServer, 14))
	p.Deliver(toServer, 7)
	expect(t, conn, "request")
	expectNothing(t, conn)
	require.EqualValues(t, 7, p.Held(toServer))
	p.Resume()
	expect(t, conn, "+cancel")
}

func TestBlackHoleAcceptsAndLosesEverything(t *testing.T) {
	t.Parallel()
	s := echo(t)
	p := faultproxy.Before(t, s.addr())
	spoke, silent := dial(t, p), dial(t, p)
	for _, conn := range []net.Conn{spoke, silent} {
		send(t, conn, "a")
		expect(t, conn, "a")
	}
	p.Drop()
	fresh := dial(t, p)
	send(t, spoke, "lost")
	send(t, fresh, "lost")
	require.NoError(t, p.WaitReceived(within(t, patience), toServer, 2+8))
	expectNothing(t, spoke)
	expectNothing(t, fresh)

	p.Heal()
	expectEnd(t, spoke)
	expectEnd(t, fresh)
	send(t, silent, "b")
	expect(t, silent, "b")
	require.Equal(t, "aab", s.saw())
}

func TestDelayIsLatencyAndNotThroughput(t *testing.T) {
	t.Parallel()
	p := faultproxy.Before(t, echo(t).addr())
	conn := dial(t, p)
	p.Delay(toServer, 60*time.Millisecond)
	p.Delay(toClient, 40*time.Millisecond)
	began := time.Now()
	const pieces = 50
	for range pieces {
		send(t, conn, "x")
	}
	for range pieces {
		expect(t, conn, "x")
	}
	took := time.Since(began)
	require.GreaterOrEqual(t, took, 100*time.Millisecond)
	require.Less(t, took, pieces*100*time.Millisecond/2)
}

func TestCutResetsOpenConnectionsOnly(t *testing.T) {
	t.Parallel()
	p := faultproxy.Before(t, echo(t).addr())
	a, b := dial(t, p), dial(t, p)
	require.NoError(t, p.WaitConnections(within(t, patience), 2))
	require.Equal(t, 2, p.Cut())
	expectEnd(t, a)
	expectEnd(t, b)
	c := dial(t, p)
	send(t, c, "c")
	expect(t, c, "c")
}

func TestRefuseSparesOpenConnections(t *testing.T) {
	t.Parallel()
	p := faultproxy.Before(t, echo(t).addr())
	open := dial(t, p)
	send(t, open, "a")
	expect(t, open, "a")
	p.Refuse()
	if conn, err := net.Dial("tcp", p.Endpoint()); err == nil { // the reset may be that quick
		defer func() { _ = conn.Close() }()
		expectEnd(t, conn)
	}
	send(t, open, "b")
	expect(t, open, "b")

	p.Down()
	expectEnd(t, open)
	p.Accept()
	again := dial(t, p)
	send(t, again, "c")
	expect(t, again, "c")
}

func TestTargetMayDieAndComeBack(t *testing.T) {
	t.Parallel()
	first := echo(t)
	p := faultproxy.Before(t, first.addr())
	conn := dial(t, p)
	send(t, conn, "a")
	expect(t, conn, "a")
	first.stop()
	expectEnd(t, conn)
	expectEnd(t, dial(t, p))

	second := echo(t)
	p.SetTarget(second.addr())
	conn = dial(t, p)
	send(t, conn, "b")
	expect(t, conn, "b")
}

func TestCloseEndsEverythingAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	p := faultproxy.Before(t, echo(t).addr())
	conn := dial(t, p)
	p.Hold()
	send(t, conn, "a")
	require.NoError(t, p.WaitHeld(within(t, patience), toServer, 1))
	waiting := make(chan error, 1)
	go func() { waiting <- p.WaitForwarded(context.Background(), toServer, 1) }()
	p.Close()
	p.Close()
	require.ErrorIs(t, <-waiting, net.ErrClosed)
	expectEnd(t, conn)
	_, err := net.Dial("tcp", p.Endpoint())
	require.Error(t, err)
}

func TestWaitSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	p := faultproxy.Before(t, echo(t).addr())
	err := p.WaitForwarded(within(t, time.Millisecond), toClient, 5)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "5 bytes forwarded to client, have 0")
}

func TestVerbsMayRaceWithTraffic(t *testing.T) {
	t.Parallel()
	p := faultproxy.Before(t, echo(t).addr())
	stop := make(chan struct{})
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				conn, err := net.Dial("tcp", p.Endpoint())
				if err != nil {
					continue
				}
				_ = conn.SetDeadline(time.Now().Add(5 * time.Millisecond))
				_, _ = io.WriteString(conn, "x")
				_, _ = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}
		})
	}
	for range 50 {
		for _, verb := range []func(){
			func() { p.Hold() }, func() { p.Deliver(toServer, 1) }, func() { p.HoldExisting(toClient) }, func() { p.Resume() },
			func() { p.Drop(toClient) }, func() { p.Delay(toServer, time.Millisecond) }, func() { p.Cut() }, p.Down, p.Heal,
		} {
			verb()
			_, _ = p.Held(toServer), p.Connections()
		}
	}
	close(stop)
	work.Wait()
	p.Heal()
	conn := dial(t, p)
	send(t, conn, "alive")
	expect(t, conn, "alive")
}
