package faultproxy_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
)

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

func TestWhatIsHeldSurvivesTheResetOfItsSender(t *testing.T) {
	t.Parallel()
	s := echo(t)
	p := faultproxy.Before(t, s.addr())
	conn := dial(t, p)
	p.Hold(toServer)
	held := strings.Repeat("0123456789abcdef", 1<<17)
	send(t, conn, held)
	require.NoError(t, p.WaitHeld(within(t, patience), toServer, int64(len(held))))
	require.NoError(t, conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, conn.Close())
	p.Resume()
	require.NoError(t, p.WaitConnections(within(t, patience), 0))
	require.Eventually(t, func() bool { return len(s.saw()) == len(held) }, patience, 5*time.Millisecond)
	require.Equal(t, held, s.saw())
}

func TestBlackHoleSwallowsTheEndOfAConnection(t *testing.T) {
	t.Parallel()
	s := echo(t)
	p := faultproxy.Before(t, s.addr())
	conn := dial(t, p)
	send(t, conn, "a")
	expect(t, conn, "a")
	p.Drop(toServer)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	expectNothing(t, conn) // a server that had seen the end would have closed
	p.StopDropping(toServer)
	expectEnd(t, conn)
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
