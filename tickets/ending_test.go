package tickets_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// An answer that arrives after the end of the epoch grants nothing.
func TestAnAnswerAfterTheEndGrantsNothing(t *testing.T) {
	t.Parallel()
	t.Run("of Reserve", func(t *testing.T) {
		t.Parallel()
		env, a, b := two(t)
		answer := make(chan struct{})
		stalled := a.tap.first("reserve", fault{stall: answer})
		failed := make(chan error, 1)
		go func() {
			_, err := a.Reserve(within(t, patience), key)
			failed <- err
		}()
		stalled.happened(t)
		eventually(t, "applied", func() bool { return len(env.tickets(key)) == 1 })
		a.End(fencing.Stopped, nil, errStopped)
		close(answer)
		require.ErrorIs(t, got(t, failed), tickets.ErrEpochEnded)
		require.NoError(t, a.stop(within(t, patience)))
		require.Empty(t, env.tickets(key), "the lease takes it along")
		release(t, b.take(t, key))
	})
	t.Run("of Grant", func(t *testing.T) {
		t.Parallel()
		env, a, b := two(t)
		turn, waiting := behind(t, a, b)
		answer := make(chan struct{})
		stalled := a.tap.first("grant", fault{stall: answer})
		release(t, turn)
		stalled.happened(t)
		eventually(t, "applied", func() bool { return env.names(key, "a") })
		cause := errors.New("the session is over")
		a.session.Lose(cause)
		err := got(t, waiting).err
		lost(t, err, fencing.Superseded)
		require.ErrorIs(t, err, cause)
		close(answer)
		require.NoError(t, a.stop(within(t, patience)))
		for _, what := range a.heard() {
			require.NotContains(t, what, "granted")
		}
		require.Equal(t, "a", previous(b.take(t, key)), "nobody can tell whether it began")
	})
	t.Run("lost, of Reserve", func(t *testing.T) {
		t.Parallel()
		env, a, b := two(t)
		answer := make(chan struct{})
		stalled := a.tap.first("reserve", fault{stall: answer, err: errCut})
		failed := make(chan error, 1)
		go func() {
			_, err := a.Reserve(within(t, patience), key)
			failed <- err
		}()
		stalled.happened(t)
		eventually(t, "applied", func() bool { return len(env.tickets(key)) == 1 })
		a.End(fencing.Expired, errCut, nil)
		close(answer)
		require.ErrorIs(t, got(t, failed), tickets.ErrEpochEnded, "reserving again in the next epoch is safe")
		require.NoError(t, a.stop(within(t, patience)))
		release(t, b.take(t, key))
	})
}

// The record names this very process, but for a turn that it never held.
func TestAGrantThatDiedWithItsSessionIsNobodysTurn(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	turn, waiting := behind(t, a, b)
	a.tap.every("grant", lose)
	release(t, turn)
	eventually(t, "applied", func() bool { return env.names(key, "a") })
	a.session.Lose(errCut)
	lost(t, got(t, waiting).err, fencing.Superseded)
	require.NoError(t, a.stop(within(t, patience)))
	next := env.join("a", processOf(a)).take(t, key)
	require.Empty(t, previous(next), "who held before is lost with the answer")
	require.False(t, next.Warm())
	release(t, next)
}

// A request of a former epoch that arrives in the next one, over the same slot numbers.
func TestNothingOfAnEarlierEpochIsAppliedInTheNext(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	for _, kind := range []string{"reserve", "settle"} {
		a.tap.every(kind, keep)
	}
	_, err := a.Reserve(within(t, patience), key)
	unavailable(t, err)
	eventually(t, "settling", func() bool { return a.tap.count("settle") > 0 })
	require.NoError(t, a.stop(within(t, patience)))

	next := env.join("a", processOf(a))
	registered := env.kvs(env.schema.Replica("a")).Kvs
	turn := next.take(t, key)
	waiting := acquiring(within(t, patience), b.reserve(t, key))
	for _, late := range a.tap.deliver(within(t, patience)) {
		require.False(t, late.succeeded, late.kind)
	}
	require.Equal(t, registered, env.kvs(env.schema.Replica("a")).Kvs)
	require.Len(t, env.tickets(key), 2)
	require.NoError(t, turn.AssertHeld())
	release(t, turn)
	release(t, won(t, waiting))
}

func TestEndTellsEverybodyOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stopped error
		waiting func(t *testing.T, err error)
	}{
		"lost":    {nil, func(t *testing.T, err error) { lost(t, err, fencing.Superseded) }},
		"stopped": {errStopped, func(t *testing.T, err error) { require.ErrorIs(t, err, errStopped) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, a, _ := two(t)
			turn := a.take(t, key)
			waiting := acquiring(within(t, patience), a.reserve(t, key))
			idle := a.reserve(t, "another key") // granted, and never acquired
			cause := errors.New("why it ended")
			for range 2 {
				a.End(fencing.Stopped, cause, c.stopped)
			}
			require.Error(t, turn.Context().Err(), "contexts have ended when End returns")
			lost(t, context.Cause(turn.Context()), fencing.Stopped)
			lost(t, turn.AssertHeld(), fencing.Stopped)
			require.ErrorIs(t, turn.AssertHeld(), cause)
			c.waiting(t, got(t, waiting).err)
			_, err := idle.Acquire(t.Context())
			c.waiting(t, err)
			require.NoError(t, turn.Release(t.Context()), "it touches nothing")
			require.NoError(t, idle.Cancel(t.Context()))
			_, err = a.Reserve(within(t, patience), key)
			require.ErrorIs(t, err, tickets.ErrEpochEnded)
			require.Equal(t, []string{
				"granted " + key + " " + itoa(turn.Fence()), "lost " + key + " " + itoa(turn.Fence()) + " stopped",
			}, a.heard())
			require.Equal(t, tickets.Counts{}, a.Counts())
		})
	}
}

// The window can end between the answer to a grant and the moment the turn is handed over.
func TestATurnIsNotHandedOverByASessionThatHasEnded(t *testing.T) {
	t.Parallel()
	_, a, _ := two(t)
	ticket := a.reserve(t, key) // granted already
	a.session.Lose(errors.New("over"))
	_, err := ticket.Acquire(within(t, patience))
	lost(t, err, fencing.Superseded)
	require.Empty(t, a.heard())
}

func TestALeaseThatIsGoneEndsTheSessionOnlyWhenANewHistoryLeaseDoesNotHelp(t *testing.T) {
	t.Parallel()
	_, a, _ := two(t)
	a.tap.first("reserve", leaseless)
	ticket := a.reserve(t, key)
	require.NoError(t, a.session.Check())
	require.Equal(t, 2, a.tap.count("history lease"))
	require.NoError(t, ticket.Cancel(within(t, patience)))

	a.die(t) // now it is the session's
	_, err := a.Reserve(within(t, patience), key)
	require.ErrorIs(t, err, tickets.ErrEpochEnded)
	require.Error(t, a.session.Err())
}

func TestARegistrationThatIsGoneEndsTheSession(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]func(t *testing.T, a *replica){
		"by Reserve": func(t *testing.T, a *replica) {
			_, err := a.Reserve(within(t, patience), "another key")
			require.ErrorIs(t, err, tickets.ErrEpochEnded)
		},
		"by the audit": func(*testing.T, *replica) {},
		"by settling": func(t *testing.T, a *replica) {
			a.tap.first("reserve", drop)
			_, err := a.Reserve(within(t, patience), "another key")
			require.Error(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, a, _ := two(t)
			turn := a.take(t, key)
			env.delete(env.schema.Replica("a"))
			notice(t, a)
			got(t, turn.Context().Done())
			lost(t, context.Cause(turn.Context()), fencing.Expired)
		})
	}
}

// The registration under another lease is another session's.
func TestASessionIsOverWhenItsRegistrationIsAnothers(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	turn := a.take(t, key)
	env.put(env.schema.Replica("a"), "{}", clientv3.NoLease)
	_, err := a.Reserve(within(t, patience), "another key")
	require.ErrorIs(t, err, tickets.ErrEpochEnded)
	got(t, turn.Context().Done())
	env.delete(env.schema.Replica("a"))
}
