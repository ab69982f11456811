package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
)

// F6, CURATOR-45 and etcd#9715: the answer to Reserve is lost, and its place is taken all the same.
func TestReserveWithALostAnswerLeavesNoGhostInTheQueue(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	proxy := faultproxy.Before(t, b.etcd.Member(0).Endpoint())
	a, c := b.replica("a"), b.replica("c")
	unlucky := b.replicaOn(clientThrough(t, b.etcd, proxy), "b")
	release(t, take(t, unlucky, "another chat")) // so that it needs no history lease later
	held := take(t, a, "chat")

	proxy.Hold(faultproxy.ToClient)
	short, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
	defer cancel()
	machine, begun := watchMachine(t, b.plain), time.Now()
	_, err := unlucky.Reserve(short, "chat")
	e := unavailable(t, err, etcdcoord.Timeout)
	require.Equal(t, "chat", e.Key)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, machine.late(begun, time.Since(begun), 1500*time.Millisecond))
	require.Len(t, b.tickets(), 2, "the ghost is in etcd")
	behind := reserve(t, c, "chat")
	proxy.Resume(faultproxy.ToClient)

	begun = time.Now()
	release(t, held)
	turn := acquire(t, c, behind)
	require.Empty(t, machine.late(begun, time.Since(begun), time.Second))
	require.Equal(t, b.ticketsOf(c), b.tickets(), "nothing of the lost attempt is left")
	require.Zero(t, unlucky.Stats().Ghosts)
	names(t, turn, "a", false)
	release(t, turn)
	takeAfter(t, unlucky, "c", false)
	b.noTickets()
}

// The ghost was granted by the very transaction that made it, and is in the record. It never held.
func TestGhostThatWasGrantedAtOnceIsNotNamedAsPreviousHolder(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	proxy := faultproxy.Before(t, b.etcd.Member(0).Endpoint())
	a := b.replica("a")
	unlucky := b.replicaOn(clientThrough(t, b.etcd, proxy), "b")
	takeAfter(t, unlucky, nobody, false) // so that it needs no history lease later

	proxy.Hold(faultproxy.ToClient)
	ctx, cancel := context.WithCancel(context.Background())
	reserved := make(chan error, 1)
	go func() {
		_, err := unlucky.Reserve(ctx, "chat")
		reserved <- err
	}()
	require.Eventually(t, func() bool { return len(b.tickets()) == 1 }, patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, got(t, reserved), context.Canceled)
	proxy.Resume(faultproxy.ToClient)
	takeAfter(t, a, nobody, false) // "unknown" is allowed, the ghost's name or "warm" for it is not
	takeAfter(t, unlucky, "a", false)
	b.noTickets()
}

// The request itself is late: it is delivered when its caller has long been told that it failed, and
// after the clean-up.
func TestReserveThatArrivesAfterItsCleanUpTakesNoPlace(t *testing.T) {
	t.Parallel()
	b, late := newLateBot(t)
	unlucky := b.replicaOn(late.client, "b", requestTimeout(2*time.Second))
	a := b.replica("a")
	release(t, take(t, unlucky, late.key))

	err := late.intercept(func(ctx context.Context) error {
		_, err := unlucky.Reserve(ctx, late.key)
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() bool { return unlucky.Stats().Ghosts == 0 }, patience, time.Millisecond, "the clean-up")
	late.deliver()
	require.Empty(t, b.tickets())
	turn := take(t, a, late.key)
	require.Len(t, b.tickets(), 1)
	names(t, turn, "b", false) // from the turn that it did hold
	release(t, turn)
	release(t, take(t, unlucky, late.key)) // its slot and its session are as good as ever
	b.noTickets()
	require.Zero(t, unlucky.Stats().SessionsLost)
}

// The same while another ticket of the replica has come to use the slot: an applied ghost would
// share its key.
func TestReserveThatArrivesLateDoesNotTouchALaterTicket(t *testing.T) {
	t.Parallel()
	b, late := newLateBot(t)
	unlucky := b.replicaOn(late.client, "b", requestTimeout(2*time.Second))
	release(t, take(t, unlucky, late.key))

	err := late.intercept(func(ctx context.Context) error {
		_, err := unlucky.Reserve(ctx, late.key)
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() bool { return unlucky.Stats().Ghosts == 0 }, patience, time.Millisecond)
	turn := take(t, unlucky, late.key)
	waiting := acquiring(soon(t), unlucky, reserve(t, unlucky, late.key))
	places := b.tickets()
	late.deliver()
	require.Equal(t, places, b.tickets())
	b.holds(turn)
	release(t, turn)
	o := got(t, waiting)
	require.NoError(t, o.err)
	release(t, o.turn)
	b.noTickets()
}

// ticketsOf are those that hang on the session of c.
func (b *bot) ticketsOf(c *etcdcoord.Coordinator) (names []string) {
	b.t.Helper()
	answer, err := b.plain.Get(soon(b.t), b.prefix+"v1/turns/", clientv3.WithPrefix())
	require.NoError(b.t, err)
	for _, kv := range answer.Kvs {
		if kv.Lease == c.Stats().LeaseID {
			names = append(names, string(kv.Key)[len(b.prefix):])
		}
	}
	return names
}
