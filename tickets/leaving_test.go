package tickets_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// grantedBehind is a turn of r that was granted behind one of other's: such a turn looks who is next
// when it leaves, while one that was granted to an empty line does not.
func grantedBehind(t *testing.T, other, r *replica) *tickets.Turn {
	t.Helper()
	first := other.take(t, key)
	waiting := acquiring(within(t, patience), r.reserve(t, key))
	release(t, first)
	return won(t, waiting)
}

func TestAReleaseIsRepeatedUntilItIsConfirmed(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{
		"answer lost": lose, "dropped": drop, "late": keep, "no space": full, "no space, applied": fullApplied, "denied": denied, "no lease": leaseless,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, a, b := two(t)
			turn := a.take(t, key)
			waiting := acquiring(within(t, patience), b.reserve(t, key))
			a.tap.on(isA("leave"), 2, f)
			release(t, turn) // returns when it is confirmed
			require.GreaterOrEqual(t, a.tap.count("leave"), 2)
			next := won(t, waiting)
			require.Equal(t, "a", previous(next))

			// In the same slot, while copies of the old request may still come.
			second := acquiring(within(t, patience), a.reserve(t, key))
			a.tap.deliver(within(t, patience))
			require.NoError(t, next.AssertHeld())
			release(t, next)
			late := won(t, second)
			a.tap.deliver(within(t, patience))
			require.Len(t, env.tickets(key), 1, "a late release does not free the next turn")
			release(t, late)
			env.empty(key)
		})
	}
}

func TestAReleaseThatIsNotConfirmedInTimeGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	turn := a.take(t, key)
	outage := a.tap.every("leave", drop)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- turn.Release(ctx) }()
	outage.happened(t)
	require.ErrorIs(t, context.Cause(turn.Context()), tickets.ErrReleased, "the work ends before anything is sent")
	cancel()
	unavailable(t, got(t, failed))

	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := turn.Release(ctx)
	require.Equal(t, fencing.Timeout, unavailable(t, err), "still not confirmed")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, tickets.Counts{Leaving: 1}, a.Counts())

	a.tap.off(outage)
	release(t, b.take(t, key))
	env.empty(key)
	release(t, turn)
	released := 0
	for _, what := range a.heard() {
		if what[:8] == "released" {
			released++
		}
	}
	require.Equal(t, 1, released, "released is told once")
}

// etcd#22123: the usual case in a defer.
func TestGivingBackDoesNotNeedALiveContext(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	turn := a.take(t, key)
	require.NoError(t, turn.Release(over))
	require.NoError(t, a.reserve(t, key).Cancel(over))
	require.Empty(t, env.tickets(key))
}

// While the epoch ends nobody can tell whether the last attempt was applied. It is no timeout.
func TestAReleaseThatTheEndOvertakesSaysThatItIsNotConfirmed(t *testing.T) {
	t.Parallel()
	_, a, _ := two(t)
	turn := a.take(t, key)
	outage := a.tap.every("leave", drop)
	failed := make(chan error, 1)
	go func() { failed <- turn.Release(within(t, patience)) }()
	outage.happened(t)
	a.End(fencing.Stopped, nil, errStopped)
	require.Equal(t, fencing.Backend, unavailable(t, got(t, failed)))
	for _, what := range a.heard() {
		require.NotContains(t, what, "lost", "it was given back before")
	}
}

// The time that a turn was held does not contain the time that giving it back took.
func TestHeldIsMeasuredUntilTheWorkEnds(t *testing.T) {
	t.Parallel()
	_, a, _ := two(t)
	begun := time.Now()
	turn := a.take(t, key)
	slow := make(chan struct{})
	stalled := a.tap.first("leave", fault{hold: slow})
	done := make(chan error, 1)
	go func() { done <- turn.Release(within(t, patience)) }()
	stalled.happened(t)
	upTo := time.Since(begun)
	<-time.After(upTo) // so the leave takes longer than all that was before it
	close(slow)
	require.NoError(t, got(t, done))
	require.LessOrEqual(t, a.heldFor(t), upTo)
}

// A nudge that nobody hears: the audit finds the head.
func TestALostNudgeCostsAnAuditAtMost(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"no space": full, "denied": denied, "no lease": leaseless} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, a, b := two(t)
			turn := grantedBehind(t, b, a)
			waiting := acquiring(within(t, patience), b.reserve(t, key))
			a.tap.every("guess", drop)
			lost := a.tap.every("nudge", f)
			release(t, turn)
			lost.happened(t)
			release(t, won(t, waiting))
			require.Equal(t, 1, a.tap.count("nudge"), "it is not repeated in vain")
		})
	}
}

// The guess at the next in line may be wrong or missing. The answer tells who it really is.
func TestAWrongGuessIsPutRightByTheAnswer(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	c := env.join("c")
	turn := grantedBehind(t, b, a)
	first := b.reserve(t, key)
	waiting := acquiring(within(t, patience), c.reserve(t, key))
	hold := make(chan struct{})
	held := a.tap.first("leave", fault{hold: hold}) // the guess has been made: b
	done := make(chan error, 1)
	go func() { done <- turn.Release(within(t, patience)) }()
	held.happened(t)
	require.NoError(t, first.Cancel(within(t, patience)))
	close(hold)
	require.NoError(t, got(t, done))
	release(t, won(t, waiting))
	require.Equal(t, 1, a.tap.count("nudge"))
	require.Empty(t, env.kvs(env.schema.Inbox(int64(b.session.Lease()))).Kvs, "whoever is gone is not nudged")
}

// A ticket that parses and has a live lease counts, whoever wrote it. Its lease need not be the one
// in its name: a nudge for it fails, and must not make Release fail for ever.
func TestAForeignTicketBehindDoesNotKeepATurnFromLeaving(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	turn := grantedBehind(t, b, a)
	lease, err := env.client.Grant(within(t, patience), 60)
	require.NoError(t, err)
	foreign := env.schema.Ticket(key, int64(lease.ID)+1, 0)
	env.put(foreign, "{}", lease.ID)
	waiting := acquiring(within(t, patience), b.reserve(t, key))
	release(t, turn)
	require.Equal(t, foreign, env.tickets(key)[0], "it is in front now")
	env.delete(foreign)
	release(t, won(t, waiting))
}

// Inside a key's tickets a name that does not parse, or has no lease, would be in front for ever.
func TestRubbishInLineIsRemoved(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(env *bench, lease clientv3.LeaseID){
		"no number": func(env *bench, lease clientv3.LeaseID) { env.put(env.schema.Tickets(key)+"rubbish", "", lease) },
		"no lease":  func(env *bench, _ clientv3.LeaseID) { env.put(env.schema.Ticket(key, 1, 1), "", clientv3.NoLease) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, a, b := two(t)
			lease, err := env.client.Grant(within(t, patience), 60)
			require.NoError(t, err)
			put(env, lease.ID)
			first := acquiring(within(t, patience), b.reserve(t, key)) // behind it: found by the audit
			turn := won(t, first)
			put(env, lease.ID)
			second := acquiring(within(t, patience), a.reserve(t, key)) // found by who leaves
			release(t, turn)
			release(t, won(t, second))
			env.empty(key)
		})
	}
}
