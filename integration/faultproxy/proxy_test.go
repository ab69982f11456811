package faultproxy_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
)

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
	expectRefusal(t, p)
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
	expectRefusal(t, p)

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
