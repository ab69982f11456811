package integration_test

import (
	"context"
	"errors"
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
