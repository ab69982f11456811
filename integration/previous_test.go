package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
)

// nobody stands for a previous holder that is not known.
const nobody = ""

// names asserts what the turn says of the turn before it.
func names(t testing.TB, turn *etcdcoord.Turn, holder string, warm bool) {
	t.Helper()
	id, known := turn.PreviousHolder()
	require.Equal(t, holder, id)
	require.Equal(t, holder != nobody, known)
	require.Equal(t, warm, turn.Warm(), "warm")
}

func takeAfter(t testing.TB, c *etcdcoord.Coordinator, holder string, warm bool) {
	t.Helper()
	turn := take(t, c, "chat")
	names(t, turn, holder, warm)
	release(t, turn)
}

// B5, python-telegram-bot#5225.
func TestTurnNamesItsPreviousHolderAndOnlyThatVeryProcessIsWarm(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	takeAfter(t, a, nobody, false)
	takeAfter(t, c, "a", false)
	takeAfter(t, a, "c", false)
	takeAfter(t, a, "a", true)
	takeAfter(t, a, "a", true)

	require.NoError(t, a.Stop(soon(t)))
	restarted := b.replica("a")
	takeAfter(t, restarted, "a", false) // the id is the same, the memory is not
	takeAfter(t, restarted, "a", true)

	require.NoError(t, restarted.Stop(soon(t)))
	require.NoError(t, restarted.Start(soon(t)))
	takeAfter(t, restarted, "a", true) // this very Coordinator, in another session
	takeAfter(t, c, "a", false)
	takeAfter(t, restarted, "c", false)
}

// The same for turns that are granted by a hand-over instead of at once.
func TestTurnThatWasWaitedForNamesItsPreviousHolder(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	first := take(t, a, "chat")
	second := acquiring(soon(t), c, reserve(t, c, "chat"))
	third := acquiring(soon(t), c, reserve(t, c, "chat"))
	fourth := acquiring(soon(t), a, reserve(t, a, "chat"))
	release(t, first)
	for _, next := range []struct {
		turn   <-chan outcome
		holder string
		warm   bool
	}{{second, "a", false}, {third, "c", true}, {fourth, "c", false}} {
		o := got(t, next.turn)
		require.NoError(t, o.err)
		names(t, o.turn, next.holder, next.warm)
		release(t, o.turn)
	}
}

func TestWhoOnlyWaitedIsNoPreviousHolder(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	held := take(t, a, "chat")
	waited := reserve(t, c, "chat")
	ctx, cancel := context.WithCancel(context.Background())
	gaveUp := acquiring(ctx, c, reserve(t, c, "chat"))
	cancel()
	require.ErrorIs(t, got(t, gaveUp).err, context.Canceled)
	require.NoError(t, waited.Cancel(soon(t)))
	release(t, held)
	takeAfter(t, a, "a", true)
}

// An unacquired ticket may have been granted by the transaction that made it, and is in the record
// then. Giving it up puts the one before back.
func TestWhoGaveItsGrantUpUnusedIsNoPreviousHolder(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	giveUp := func(c *etcdcoord.Coordinator) { require.NoError(t, reserve(t, c, "chat").Cancel(soon(t))) }
	giveUp(a)
	takeAfter(t, a, nobody, false) // nobody before: nobody again
	giveUp(c)
	takeAfter(t, a, "a", true)
	giveUp(a)
	takeAfter(t, a, "a", true) // its own grant, given up
	giveUp(c)
	giveUp(a)
	giveUp(c)
	takeAfter(t, c, "a", false)

	// The same when AcquireTurn gives it up.
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := a.AcquireTurn(cancelled, reserve(t, a, "chat"))
	require.ErrorIs(t, err, context.Canceled)
	b.noTickets()
	takeAfter(t, c, "c", true)
}

// The same for grants by hand-over: whoever wins the race between grant and cancellation, the record
// names who really held.
func TestCancelledWaiterIsNeverNamedWhateverItWasGranted(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	takeAfter(t, a, nobody, false)
	outcomes := make(map[bool]int)
	var handOver aim
	for range 30 {
		held := take(t, a, "chat")
		names(t, held, "a", true)
		ctx, cancel := context.WithCancel(context.Background())
		waiting := acquiring(ctx, c, reserve(t, c, "chat"))
		released := make(chan error, 1)
		go func() { released <- held.Release(context.Background()) }()
		handOver.wait()
		cancel()
		o := got(t, waiting)
		outcomes[o.err == nil]++
		handOver.adjust(o.err != nil)
		require.NoError(t, got(t, released))
		b.noTicketsBut(o.turn)
		if o.err == nil { // it held after all
			names(t, o.turn, "a", false)
			release(t, o.turn)
			takeAfter(t, a, "c", false)
		}
	}
	require.Len(t, outcomes, 2, "both must happen: %v", outcomes)
}

// noTicketsBut waits until no ticket but perhaps the turn's is left.
func (b *bot) noTicketsBut(turn *etcdcoord.Turn) {
	b.t.Helper()
	left := 0
	if turn != nil {
		left = 1
	}
	require.Eventually(b.t, func() bool { return len(b.tickets()) == left }, patience, time.Millisecond)
}

func TestReplicaThatDiedHoldingIsThePreviousHolder(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	proxy := faultproxy.Before(t, b.etcd.Member(0).Endpoint())
	doomed := b.replicaOn(clientThrough(t, b.etcd, proxy), "doomed", ttl(3*time.Second), renewEvery(300*time.Millisecond))
	c := b.replica("c")
	turn := take(t, doomed, "chat")
	waiting := acquiring(soon(t), c, reserve(t, c, "chat"))
	proxy.Drop()
	o := got(t, waiting)
	require.NoError(t, o.err)
	lost(t, context.Cause(turn.Context()), etcdcoord.Expired)
	names(t, o.turn, "doomed", false)

	proxy.Heal() // it was no death; it has held the turn before c's, not the one before its next
	release(t, o.turn)
	takeAfter(t, doomed, "c", false)
	takeAfter(t, doomed, "doomed", true)
}

// A process whose turn was cut off has the memory of it all the same, if nobody came in between.
func TestTurnLostWithItsSessionStillCountsAsHeld(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a")
	turn := take(t, a, "chat")
	b.revoke(a)
	got(t, turn.Context().Done())
	takeAfter(t, a, "a", true)
}

// A grant that died with its session was perhaps never told to anybody: of who held before nothing
// is known any more, and the record must not be taken for one's own memory.
func TestGrantThatWasNeverHeldMakesItsOwnProcessNotWarm(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	takeAfter(t, a, nobody, false)
	reserve(t, a, "chat") // granted at once, and not acquired
	b.revoke(a)
	b.noTickets()
	takeAfter(t, a, nobody, false)

	reserve(t, a, "chat")
	b.revoke(a)
	b.noTickets()
	takeAfter(t, c, "a", false) // for others it counts: it may have begun
}

func TestPreviousHolderIsForgottenWhenTheKeyWasIdleForHistoryTTLAndNotBefore(t *testing.T) {
	t.Parallel()
	withTTL(t, func(b *bot, d time.Duration) (disturbed bool) {
		history := func(cfg *etcdcoord.Config) { cfg.HistoryTTL = d }
		a, c := b.shortLived("a", d, history), b.shortLived("c", d, history)

		// Held for longer than HistoryTTL, from the grant on, whenever AcquireTurn is called.
		ticket, pending := reserve(t, a, "chat"), reserve(t, a, "acquired-late")
		turn := acquire(t, a, ticket)
		b.noHolder("chat")
		b.noHolder("acquired-late")
		if anyLost(a, c) {
			return true
		}
		release(t, acquire(t, a, pending))
		release(t, turn)
		late := take(t, c, "acquired-late")
		names(t, late, "a", false)
		release(t, late)
		takeAfter(t, c, "a", false)

		b.noHolder("chat") // now it is idle
		takeAfter(t, c, nobody, false)
		takeAfter(t, c, "c", true)
		return false
	})
}
