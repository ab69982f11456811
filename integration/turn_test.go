package integration_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
)

func TestDeadlineForWaitingDoesNotEndTheTurn(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.replica("a")
	ticket := reserve(t, c, "chat")
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	turn, err := c.AcquireTurn(ctx, ticket)
	require.NoError(t, err)
	got(t, ctx.Done())
	cancel()
	require.NoError(t, turn.AssertHeld())
	require.NoError(t, turn.Context().Err())
	_, hasDeadline := turn.Context().Deadline()
	require.False(t, hasDeadline)
	b.holds(turn)
	release(t, turn)
}

type userKey struct{}

var errShutdown = errors.New("the handler's server shuts down")

func TestBoundContextKeepsItsParentsValuesAndDeadline(t *testing.T) {
	t.Parallel()
	turn := take(t, newBot(t).replica("a"), "chat")
	until := time.Now().Add(time.Hour)
	parent, cancel := context.WithDeadline(context.WithValue(context.Background(), userKey{}, "ada"), until)
	defer cancel()
	ctx, end := turn.Bind(parent)
	defer end()
	require.Equal(t, "ada", ctx.Value(userKey{}))
	deadline, ok := ctx.Deadline()
	require.True(t, ok)
	require.True(t, deadline.Equal(until))
	require.NoError(t, ctx.Err())

	short, cancel := context.WithTimeout(parent, 20*time.Millisecond)
	defer cancel()
	ctx, end = turn.Bind(short)
	defer end()
	require.ErrorIs(t, cause(t, ctx), context.DeadlineExceeded)
	require.NoError(t, turn.AssertHeld(), "the deadline of one request is not the turn's")
	release(t, turn)
}

func TestBoundContextEndsWithWhicheverEndsFirstAndKeepsTheCause(t *testing.T) {
	t.Parallel()
	turn := take(t, newBot(t).replica("a"), "chat")
	parent, shutDown := context.WithCancelCause(context.Background())
	byParent, end := turn.Bind(parent)
	defer end()
	byTurn, end := turn.Bind(context.Background())
	defer end()
	byItself, end := turn.Bind(context.Background())

	end()
	require.ErrorIs(t, cause(t, byItself), context.Canceled)
	shutDown(errShutdown)
	require.Equal(t, errShutdown, cause(t, byParent))
	require.NoError(t, turn.AssertHeld())
	require.NoError(t, byTurn.Err())

	release(t, turn)
	require.Equal(t, etcdcoord.ErrReleased, cause(t, byTurn))
	require.Equal(t, errShutdown, context.Cause(byParent), "the first cause stays")
	late, end := turn.Bind(context.Background())
	defer end()
	require.Equal(t, etcdcoord.ErrReleased, context.Cause(late), "bound to a turn that has ended: ended from the start")
}

func TestReleasedTurnSaysSo(t *testing.T) {
	t.Parallel()
	turn := take(t, newBot(t).replica("a"), "chat")
	release(t, turn)
	require.ErrorIs(t, turn.AssertHeld(), etcdcoord.ErrReleased)
	require.ErrorIs(t, cause(t, turn.Context()), etcdcoord.ErrReleased)
}

// The answer to the release is on its way for as long as it likes; the next turn has begun already.
func TestTurnsContextHasEndedBeforeTheNextTurnBegins(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	proxy := faultproxy.Before(t, b.etcd.Member(0).Endpoint())
	a, c := b.replicaOn(clientThrough(t, b.etcd, proxy), "a"), b.replica("c")
	turn := take(t, a, "chat")
	next := acquiring(soon(t), c, reserve(t, c, "chat"))
	work, end := turn.Bind(context.Background())
	defer end()
	proxy.Hold(faultproxy.ToClient)
	done := make(chan error, 1)
	go func() { done <- turn.Release(soon(t)) }()
	o := got(t, next)
	require.NoError(t, o.err)
	require.ErrorIs(t, context.Cause(turn.Context()), etcdcoord.ErrReleased)
	require.ErrorIs(t, turn.AssertHeld(), etcdcoord.ErrReleased)
	require.ErrorIs(t, cause(t, work), etcdcoord.ErrReleased)
	require.Empty(t, done)
	proxy.Resume(faultproxy.ToClient)
	require.NoError(t, got(t, done))
	release(t, o.turn)
}

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

func TestGuardHoldsInAUsersTransactionOnlyWhileTheTurnIsHeld(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.replica("a")
	write := func(turn *etcdcoord.Turn, value string) bool {
		answer, err := b.plain.Txn(soon(t)).If(turn.Guard()).Then(clientv3.OpPut(b.prefix+"users/data", value)).Commit()
		require.NoError(t, err)
		return answer.Succeeded
	}
	first := take(t, c, "chat")
	waiting := reserve(t, c, "chat")
	require.True(t, write(first, "1"))
	release(t, first)
	require.False(t, write(first, "too late"))
	second := acquire(t, c, waiting)
	require.False(t, write(first, "too late, and in the same slot or not"))
	require.True(t, write(second, "2"))
	release(t, second)
	third := take(t, c, "chat") // in the first one's slot
	require.False(t, write(first, "too late, in the same slot"))
	require.True(t, write(third, "3"))
	require.NoError(t, c.Stop(soon(t)))
	require.False(t, write(third, "after a stop"))
}

// F8, etcd#17470 and redisson#7272.
func TestHandlerThatIgnoresItsContextIsCutAtMaxHold(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	limit := 400 * time.Millisecond
	a := b.replica("a", func(cfg *etcdcoord.Config) { cfg.MaxHold = limit })
	c := b.replica("c") // has no limit
	events := make(chan etcdcoord.TurnLost, 10)
	etcdcoord.On(a, func(e etcdcoord.TurnLost) { events <- e })

	ticket := reserve(t, a, "chat")
	begun := time.Now()
	turn := acquire(t, a, ticket)
	next := acquiring(soon(t), c, reserve(t, c, "chat"))
	o := got(t, next)
	require.NoError(t, o.err)
	require.GreaterOrEqual(t, time.Since(begun), limit)
	require.Error(t, turn.Context().Err(), "the holder is told before the next turn begins")
	e := lost(t, context.Cause(turn.Context()), etcdcoord.MaxHold)
	require.Equal(t, "chat", e.Key)
	require.Equal(t, turn.Fence(), e.Token)
	require.Equal(t, e, turn.AssertHeld())
	event := got(t, events)
	require.Equal(t, turn.Fence(), event.Fence)
	lost(t, event.Err, etcdcoord.MaxHold)
	release(t, turn) // late, and of no effect
	b.holds(o.turn)

	waiter := acquiring(soon(t), a, reserve(t, a, "chat"))
	select {
	case o := <-waiter:
		t.Fatalf("granted while c, without a limit, holds: %v", o)
	case <-time.After(2 * limit):
	}
	require.NoError(t, o.turn.AssertHeld())
	release(t, o.turn)
	o = got(t, waiter)
	require.NoError(t, o.err)
	release(t, o.turn) // within the limit
	require.ErrorIs(t, o.turn.AssertHeld(), etcdcoord.ErrReleased)
	b.noTickets()
	require.Empty(t, events, "a turn that was released in time is not lost later")
}
