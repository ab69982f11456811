package integration_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
)

func TestReleaseMayBeRepeatedAndCalledByManyAtOnce(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.replica("a")
	turn := take(t, c, "chat")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := turn.Release(soon(t)); err != nil {
				t.Error(err)
			}
			if err := turn.AssertHeld(); !errors.Is(err, etcdcoord.ErrReleased) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Empty(t, b.tickets(), "a release that returned nil is confirmed, whoever's it was")
	require.EqualValues(t, 1, c.Stats().TurnsReleased)
	release(t, turn)
}

func TestReleaseWorksWithAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithTimeout(context.Background(), -time.Second)
	defer cancel()
	for _, ctx := range []context.Context{cancelled, expired} {
		turn := take(t, a, "chat")
		waiter := acquiring(soon(t), c, reserve(t, c, "chat"))
		require.NoError(t, turn.Release(ctx)) // F28, etcd#22123
		next := got(t, waiter)
		require.NoError(t, next.err)
		require.NoError(t, next.turn.Release(ctx))
		require.Empty(t, b.tickets())

		ticket := reserve(t, a, "chat")
		require.NoError(t, ticket.Cancel(ctx))
		require.Empty(t, b.tickets())
	}
}

// The new turn has the old one's slot, so the same key in etcd, and only the create revision differs.
func TestRepeatedReleaseDoesNotFreeTheNextTurnInItsSlot(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.replica("a")
	old := take(t, c, "chat")
	name := b.tickets()
	release(t, old)
	next := take(t, c, "chat")
	require.Equal(t, name, b.tickets())
	release(t, old)
	b.holds(next)
	release(t, next)
	b.noTickets()
}

// The request of the first release is lost on its way, its repetition gets through, and then the
// first one arrives after all.
func TestReleaseThatArrivesLateDoesNotFreeTheNextTurnInItsSlot(t *testing.T) {
	t.Parallel()
	b, late := newLateBot(t)
	c := b.replicaOn(late.client, "a", requestTimeout(2*time.Second))
	old := take(t, c, late.key)
	name := b.tickets()

	err := late.intercept(old.Release)
	require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled, "why the caller did not wait longer")
	b.noTickets() // by the repetition, over another connection
	release(t, old)
	next := take(t, c, late.key)
	require.Equal(t, name, b.tickets())
	late.deliver()
	b.holds(next)
	require.NoError(t, next.AssertHeld())
	release(t, next)
	b.noTickets()
}

// F5, etcd#22082: the release commits, its answer is lost, the process reserves the key again, and
// the release is repeated.
func TestReleaseWithALostAnswerLeavesTheNextHoldIntact(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	proxy := faultproxy.Before(t, b.etcd.Member(0).Endpoint())
	c := b.replicaOn(clientThrough(t, b.etcd, proxy), "a")
	first := take(t, c, "chat")

	proxy.Hold(faultproxy.ToClient)
	short, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	err := first.Release(short)
	unavailable(t, err, etcdcoord.Timeout)
	require.ErrorIs(t, first.AssertHeld(), etcdcoord.ErrReleased, "whatever etcd says, the work is over")
	b.noTickets() // it was committed
	proxy.Cut()   // and now the answer is lost for good
	proxy.Heal()

	second := acquire(t, c, reserveInTime(t, c, "chat"))
	require.Greater(t, second.Fence(), first.Fence())
	release(t, first)
	require.Eventually(t, func() bool { return c.Stats().Leaving == 0 }, patience, time.Millisecond)
	release(t, first)
	require.NoError(t, second.AssertHeld())
	b.holds(second)
	release(t, second)
	b.noTickets()
}
