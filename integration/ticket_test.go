package integration_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// revoke ends the session of c as etcd would, by the hand of another client.
func (b *bot) revoke(c *etcdcoord.Coordinator) {
	b.t.Helper()
	_, err := b.plain.Revoke(soon(b.t), clientv3.LeaseID(c.Stats().LeaseID))
	require.NoError(b.t, err)
}

func TestWaitingTicketIsSupersededWhenItsSessionEnds(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	held := take(t, a, "chat")
	ticket, notYet := reserve(t, c, "chat"), reserve(t, c, "chat")
	waiting := acquiring(soon(t), c, ticket)
	machine, begun := watchMachine(t, b.plain), time.Now()
	b.revoke(c)
	o := got(t, waiting)
	e := lost(t, o.err, etcdcoord.Superseded)
	require.Equal(t, "chat", e.Key)
	require.Equal(t, ticket.Fence(), e.Token)
	require.Empty(t, machine.late(begun, time.Since(begun), 3*time.Second), "noticed by a look at etcd, not by the end of the session's time")
	_, err := c.AcquireTurn(soon(t), ticket)
	require.ErrorIs(t, err, etcdcoord.ErrTicketSpent)
	_, err = c.AcquireTurn(soon(t), notYet)
	lost(t, err, etcdcoord.Superseded)
	require.NoError(t, notYet.Cancel(soon(t)))

	next := acquiring(soon(t), c, reserve(t, c, "chat")) // in a new epoch
	b.holds(held)
	release(t, held)
	o = got(t, next)
	require.NoError(t, o.err)
	release(t, o.turn)
	b.noTickets()
}

func TestWaitingTicketThatIsDeletedByHandIsSuperseded(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	held := take(t, a, "chat")
	before := b.tickets()
	ticket := reserve(t, c, "chat")
	behind := reserve(t, c, "chat")
	for _, name := range b.tickets() {
		if !slices.Contains(before, name) && b.created(name) == ticket.Fence() {
			_, err := b.plain.Delete(soon(t), b.prefix+name)
			require.NoError(t, err)
		}
	}
	_, err := c.AcquireTurn(soon(t), ticket)
	lost(t, err, etcdcoord.Superseded)
	waiting := acquiring(soon(t), c, behind)
	release(t, held)
	o := got(t, waiting)
	require.NoError(t, o.err, "the one behind it keeps its place")
	require.Equal(t, behind.Fence(), o.turn.Fence())
	release(t, o.turn)
}

func (b *bot) created(name string) etcdcoord.Token {
	b.t.Helper()
	answer, err := b.plain.Get(soon(b.t), b.prefix+name)
	require.NoError(b.t, err)
	require.Len(b.t, answer.Kvs, 1)
	return etcdcoord.Token(answer.Kvs[0].CreateRevision)
}

// F33, amphp/redis#61.
func TestWaiterWhoseDeadlinePassesIsWithdrawnAndDelaysNobody(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c, d := b.replica("a"), b.replica("c"), b.replica("d")
	held := take(t, a, "chat")
	ticket := reserve(t, c, "chat")
	next := acquiring(soon(t), d, reserve(t, d, "chat"))

	mine := errors.New("the user has waited long enough")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, mine)
	defer cancel()
	_, err := c.AcquireTurn(ctx, ticket)
	e := unavailable(t, err, etcdcoord.Timeout)
	require.Equal(t, "chat", e.Key)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, mine)
	require.Eventually(t, func() bool { return len(b.tickets()) == 2 }, patience, time.Millisecond)
	_, err = c.AcquireTurn(soon(t), ticket)
	require.ErrorIs(t, err, etcdcoord.ErrTicketSpent)
	require.NoError(t, ticket.Cancel(soon(t)))

	release(t, held)
	o := got(t, next)
	require.NoError(t, o.err)
	release(t, o.turn)
	require.Empty(t, b.tickets())
}

func TestCancelledWaiterGetsItsCausePlainly(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	held := take(t, a, "chat")
	ctx, cancel := context.WithCancelCause(context.Background())
	waiting := acquiring(ctx, c, reserve(t, c, "chat"))
	cancel(errShutdown)
	o := got(t, waiting)
	require.ErrorIs(t, o.err, errShutdown)
	require.NotErrorIs(t, o.err, etcdcoord.ErrUnavailable, "etcd has nothing to do with it")
	require.Eventually(t, func() bool { return len(b.tickets()) == 1 }, patience, time.Millisecond)

	// With a context that has ended before, also a ticket whose turn has come.
	release(t, held)
	ticket := reserve(t, c, "chat")
	_, err := c.AcquireTurn(ctx, ticket)
	require.ErrorIs(t, err, errShutdown)
	b.noTickets()
	_, err = c.Reserve(ctx, "chat")
	require.ErrorIs(t, err, errShutdown)
	expired, cancelExpired := context.WithTimeout(context.Background(), -1)
	defer cancelExpired()
	_, err = c.Reserve(expired, "chat")
	unavailable(t, err, etcdcoord.Timeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = c.AcquireTurn(expired, reserve(t, c, "chat"))
	unavailable(t, err, etcdcoord.Timeout)
	b.noTickets()
}

// Whoever is next must not wait for the cancelled one's nudge, which may have been the one that counted.
func TestCancelledHeadHandsOnWhatItWasGranted(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c, d := b.replica("a"), b.replica("c"), b.replica("d")
	machine := watchMachine(t, b.plain)
	var handOver aim
	for range 20 {
		held := take(t, a, "chat")
		ticket := reserve(t, c, "chat")
		ctx, cancel := context.WithCancel(context.Background())
		waiting := acquiring(ctx, c, ticket)
		next := acquiring(soon(t), d, reserve(t, d, "chat"))
		go func() { _ = held.Release(context.Background()) }()
		handOver.wait()
		cancel()
		o := got(t, waiting)
		handOver.adjust(o.err != nil)
		if o.err == nil {
			release(t, o.turn)
		}
		begun := time.Now()
		o = got(t, next)
		require.NoError(t, o.err)
		require.Empty(t, machine.missed(begun, time.Since(begun)))
		release(t, o.turn)
		b.noTickets()
	}
}

func TestTicketCanBeUsedOnce(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	ticket := reserve(t, a, "chat")
	require.Equal(t, "chat", ticket.Key())
	_, err := c.AcquireTurn(soon(t), ticket)
	require.ErrorIs(t, err, etcdcoord.ErrForeignTicket)
	_, err = a.AcquireTurn(soon(t), nil)
	require.ErrorIs(t, err, etcdcoord.ErrForeignTicket)
	_, err = a.AcquireTurn(soon(t), new(etcdcoord.Ticket))
	require.ErrorIs(t, err, etcdcoord.ErrForeignTicket)
	var none *etcdcoord.Ticket
	require.ErrorIs(t, none.Cancel(soon(t)), etcdcoord.ErrForeignTicket)
	require.ErrorIs(t, new(etcdcoord.Ticket).Cancel(soon(t)), etcdcoord.ErrForeignTicket)

	turn := acquire(t, a, ticket) // none of that has spent it
	_, err = a.AcquireTurn(soon(t), ticket)
	require.ErrorIs(t, err, etcdcoord.ErrTicketSpent)
	require.NoError(t, ticket.Cancel(soon(t)), "`defer ticket.Cancel(ctx)` is the idiom")
	b.holds(turn)
	release(t, turn)
	require.NoError(t, ticket.Cancel(soon(t)))
	_, err = a.AcquireTurn(soon(t), ticket)
	require.ErrorIs(t, err, etcdcoord.ErrTicketSpent)

	ticket = reserve(t, a, "chat")
	require.NoError(t, ticket.Cancel(soon(t)))
	require.Empty(t, b.tickets())
	_, err = a.AcquireTurn(soon(t), ticket)
	require.ErrorIs(t, err, etcdcoord.ErrTicketSpent)
	require.NoError(t, ticket.Cancel(soon(t)))
}

func TestTicketOfAFormerEpochFailsAndTouchesNothing(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.replica("a")
	ticket, cancelled := reserve(t, c, "chat"), reserve(t, c, "chat")
	require.NoError(t, c.Stop(soon(t)))
	require.Empty(t, b.tickets())
	require.NoError(t, c.Start(soon(t)))
	turn := take(t, c, "chat")
	_, err := c.AcquireTurn(soon(t), ticket)
	require.ErrorIs(t, err, etcdcoord.ErrStopped)
	require.NoError(t, cancelled.Cancel(soon(t)))
	b.holds(turn)
	release(t, turn)
}

// Either the caller of AcquireTurn has the turn and Cancel did nothing, or the ticket is gone.
func TestCancelAndAcquireTurnAtOnceHaveOneWinner(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	outcomes := make(map[bool]int)
	var handOver aim
	for range 40 {
		held := take(t, a, "chat")
		ticket := reserve(t, c, "chat")
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := held.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			handOver.wait()
			if err := ticket.Cancel(soon(t)); err != nil {
				t.Error(err)
			}
		})
		turn, err := c.AcquireTurn(soon(t), ticket)
		wg.Wait()
		outcomes[err == nil]++
		handOver.adjust(err != nil)
		if err == nil {
			b.holds(turn)
			release(t, turn)
		} else {
			require.ErrorIs(t, err, etcdcoord.ErrTicketSpent)
		}
		require.Empty(t, b.tickets())
	}
	require.Len(t, outcomes, 2, "both must happen: %v", outcomes)
}
