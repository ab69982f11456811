package tickets_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// behind: b has the turn, and a waits for it in the background.
func behind(t *testing.T, a, b *replica) (turn *tickets.Turn, waiting <-chan outcome) {
	t.Helper()
	turn = b.take(t, key)
	return turn, acquiring(within(t, patience), a.reserve(t, key))
}

func TestAGrantIsRepeatedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    fault
		previous string // what may be told for certain
	}{
		"answer lost":       {lose, ""},
		"dropped":           {drop, "b"},
		"late":              {keep, "b"},
		"no space":          {full, "b"},
		"no space, applied": {fullApplied, ""},
		"no lease":          {leaseless, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, a, b := two(t)
			turn, waiting := behind(t, a, b)
			a.tap.first("grant", c.fault)
			release(t, turn)
			mine := won(t, waiting)
			require.Equal(t, c.previous, previous(mine))
			require.False(t, mine.Warm())
			require.Equal(t, 2, a.tap.count("grant"))

			next := acquiring(within(t, patience), b.reserve(t, key))
			a.tap.deliver(within(t, patience)) // a copy of the grant, while the turn is on
			release(t, mine)
			last := won(t, next)
			require.Contains(t, []string{"a", ""}, previous(last))
			if name != "no space" && name != "no space, applied" {
				require.Equal(t, "a", previous(last))
			}
			before := env.kvs(env.schema.Holder(key)).Kvs
			a.tap.deliver(within(t, patience)) // and after it
			require.Equal(t, before, env.kvs(env.schema.Holder(key)).Kvs)
			require.NoError(t, last.AssertHeld())
			release(t, last)
		})
	}
}

// A late copy of a grant must not name its replica once the ticket has left.
func TestALateGrantIsNotAppliedAfterItsTicketHasLeft(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	turn := b.take(t, key)
	ticket := a.reserve(t, key)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := acquiring(ctx, ticket)
	kept := a.tap.every("grant", keep)
	release(t, turn)
	kept.happened(t)
	cancel()
	require.ErrorIs(t, got(t, waiting).err, context.Canceled)
	a.idle(t)
	env.empty(key)
	for _, late := range a.tap.deliver(within(t, patience)) {
		require.False(t, late.succeeded)
	}
	next := b.take(t, key)
	require.Equal(t, "b", previous(next))
	require.True(t, next.Warm())
}

func TestARefusedGrantEndsTheWaitingWithAType(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	turn, waiting := behind(t, a, b)
	a.tap.first("grant", denied)
	release(t, turn)
	require.Equal(t, fencing.Denied, unavailable(t, got(t, waiting).err))
	env.empty(key)
	release(t, b.take(t, key))
}

// Given up while its grant is under way: the answer tells whom the record has to name again.
func TestAGrantThatIsGivenUpNamesThePredecessorAgain(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]func(t *testing.T, a *replica, ticket *tickets.Ticket, endWaiting context.CancelFunc) error{
		"cancelled context": func(_ *testing.T, _ *replica, _ *tickets.Ticket, endWaiting context.CancelFunc) error {
			endWaiting()
			return nil
		},
		"Cancel": func(t *testing.T, _ *replica, ticket *tickets.Ticket, _ context.CancelFunc) error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // not waited for here: the grant hangs
			return ticket.Cancel(ctx)
		},
	} {
		for where, hang := range map[string]func(c chan struct{}) fault{
			"before it is applied": func(c chan struct{}) fault { return fault{hold: c} },
			"after it was applied": func(c chan struct{}) fault { return fault{stall: c} },
		} {
			t.Run(name+" "+where, func(t *testing.T) {
				t.Parallel()
				env, a, b := two(t)
				c := env.join("c")
				turn := b.take(t, key)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ticket := a.reserve(t, key)
				waiting := acquiring(ctx, ticket)
				third := acquiring(within(t, patience), c.reserve(t, key))
				hang1 := make(chan struct{})
				hanging := a.tap.first("grant", hang(hang1))
				release(t, turn)
				hanging.happened(t)
				gaveUp := make(chan error, 1)
				go func() { gaveUp <- giveUp(t, a, ticket, cancel) }()
				require.Error(t, got(t, waiting).err)
				require.Equal(t, tickets.Counts{Leaving: 1}, a.Counts(), "it waits for the grant")
				close(hang1)
				_ = got(t, gaveUp) // by then it may or may not be confirmed
				next := won(t, third)
				require.Equal(t, "b", previous(next), "a gave it up unused")
				a.idle(t)
				release(t, next)
			})
		}
	}
}

// Granted by the transaction that made it, and never acquired.
func TestAnEagerTicketThatIsCancelledNamesThePredecessorAgain(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	first := b.take(t, key)
	release(t, first)
	ticket := a.reserve(t, key)
	require.Contains(t, env.record(key), `"a"`)
	require.NoError(t, ticket.Cancel(within(t, patience)))
	require.Equal(t, `{"replica":"b","incarnation":"b-1","fence":`+itoa(first.Fence())+`}`, env.record(key))
	next := b.take(t, key)
	require.Equal(t, "b", previous(next))
	require.True(t, next.Warm(), "b really held the turn before")
}

// etcd can be full for the put that would name the predecessor. "Unknown" is safe.
func TestAnEagerTicketThatCannotNameThePredecessorNamesNobody(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	release(t, b.take(t, key))
	ticket := a.reserve(t, key)
	a.tap.first("leave", full)
	require.NoError(t, ticket.Cancel(within(t, patience)))
	require.Empty(t, env.record(key))
	require.Empty(t, previous(b.take(t, key)))
}

// A trigger that comes while a grant is under way speaks of what that grant may not have seen.
func TestATriggerDuringAGrantIsNotForgotten(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	a.tap.every("audit", drop) // it would help
	turn, waiting := behind(t, a, b)
	answer := make(chan struct{})
	stalled := a.tap.first("grant", fault{stall: answer})
	a.TriggerAll() // a stray one: it asks, and is told that it is not head
	stalled.answered(t)
	release(t, turn)
	inbox := env.schema.Nudge(key, int64(a.session.Lease()), 0)
	eventually(t, "no nudge", func() bool { return len(env.kvs(inbox).Kvs) == 1 })
	a.TriggerAll() // certainly after the nudge was put, and before the answer
	close(answer)
	release(t, won(t, waiting))
	require.Equal(t, 2, a.tap.count("grant"))
}

// hearsAll returns when the replica, which waits for the key "marker", has heard of every nudge so far.
func (b *bench) hearsAll(r *replica) {
	b.t.Helper()
	asked := r.tap.first("grant", fault{})
	b.put(b.schema.Nudge("marker", int64(r.session.Lease()), 0), "", r.session.Lease())
	asked.happened(b.t)
}

// The nudge overtakes the answer of the Reserve that it is for.
func TestATriggerDuringAReserveIsNotForgotten(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	a.tap.every("audit", drop) // it would help
	b.take(t, "marker")
	acquiring(within(t, patience), a.reserve(t, "marker"))
	turn := b.take(t, key)
	answer := make(chan struct{})
	stalled := a.tap.first("reserve", fault{stall: answer})
	reserved := make(chan *tickets.Ticket, 1)
	go func() {
		ticket, err := a.Reserve(within(t, patience), key)
		if err != nil {
			t.Error(err)
		}
		reserved <- ticket
	}()
	stalled.answered(t)
	release(t, turn)
	inbox := env.schema.Nudge(key, int64(a.session.Lease()), 0)
	eventually(t, "no nudge", func() bool { return len(env.kvs(inbox).Kvs) == 1 })
	env.hearsAll(a)
	close(answer)
	release(t, acquire(t, got(t, reserved)))
}

// The answer of an older Reserve comes after that of a younger one, and triggers in between.
func TestAnswersOfReserveMayComeInAnyOrder(t *testing.T) {
	t.Parallel()
	for name, inBetween := range map[string]bool{"a trigger comes in between": true, "no trigger": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, a, b := two(t)
			turn := b.take(t, key)
			answer := make(chan struct{})
			a.tap.first("reserve", fault{stall: answer})
			older := make(chan *tickets.Ticket, 1)
			go func() {
				ticket, err := a.Reserve(within(t, patience), key)
				if err != nil {
					t.Error(err)
				}
				older <- ticket
			}()
			eventually(t, "applied", func() bool { return len(env.tickets(key)) == 2 })
			younger := acquiring(within(t, patience), a.reserve(t, key))
			if inBetween {
				release(t, turn)
				eventually(t, "the younger one asks", func() bool { return a.tap.count("grant") > 0 })
			}
			close(answer)
			if !inBetween {
				release(t, turn)
			}
			first := acquire(t, got(t, older))
			select {
			case <-younger:
				t.Fatal("the younger one was granted while the older one has the turn")
			default:
			}
			release(t, first)
			second := won(t, younger)
			require.Greater(t, second.Fence(), first.Fence())
			require.True(t, second.Warm())
			release(t, second)
		})
	}
}

func TestAcquireWithAContextThatHasEndedGivesTheTurnAway(t *testing.T) {
	t.Parallel()
	_, a, b := two(t)
	mine := errors.New("mine")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(mine)
	ticket := a.reserve(t, key) // granted already
	_, err := ticket.Acquire(ctx)
	require.ErrorIs(t, err, mine)
	_, err = ticket.Acquire(t.Context())
	require.ErrorIs(t, err, tickets.ErrTicketSpent)
	require.NoError(t, ticket.Cancel(within(t, patience)))
	require.Empty(t, previous(b.take(t, key)))
}
