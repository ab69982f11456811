package etcdcoord_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// hear collects events of one type.
func hear[E etcdcoord.Event](c *etcdcoord.Coordinator) (<-chan E, func()) {
	events := make(chan E, 1000)
	return events, etcdcoord.On(c, func(e E) { events <- e })
}

// recent asserts that an event happened since begun.
func recent(t *testing.T, begun, at time.Time) {
	t.Helper()
	require.WithinRange(t, at, begun, time.Now())
}

func TestEventsOfOtherReplicas(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	early, _ := b.started("early")
	a, _ := b.started("a")
	joined, _ := hear[etcdcoord.ReplicaJoined](a)
	left, _ := hear[etcdcoord.ReplicaLeft](a)
	skipped, _ := hear[etcdcoord.TicketSkipped](a)
	begun := time.Now()
	other, _ := b.started("b")
	j := got(t, joined)
	require.Equal(t, "b", j.Replica, "and not whoever was there before")
	recent(t, begun, j.At)

	turn := take(t, other, "k")
	ticket := reserve(t, a, "k")
	b.kill(other)
	l := got(t, left)
	require.Equal(t, etcdcoord.ReplicaLeft{At: l.At, Replica: "b", Crashed: true}, l)
	recent(t, begun, l.At)
	s := got(t, skipped)
	require.Equal(t, etcdcoord.TicketSkipped{At: s.At, Key: "k", Fence: turn.Fence(), Replica: "b"}, s)
	recent(t, begun, s.At)
	require.NoError(t, ticket.Cancel(within(t, patience)))
	require.Equal(t, "b", got(t, joined).Replica, "it has healed")

	require.NoError(t, early.Stop(within(t, patience)))
	l = got(t, left)
	require.Equal(t, "early", l.Replica)
	require.Empty(t, joined)
	require.Empty(t, skipped)
}

func TestEventsOfThisReplica(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, _ := b.started("a")
	turnLost, _ := hear[etcdcoord.TurnLost](a)
	gained, _ := hear[etcdcoord.LeadershipGained](a)
	leadLost, _ := hear[etcdcoord.LeadershipLost](a)
	sessionLost, _ := hear[etcdcoord.SessionLost](a)
	restored, _ := hear[etcdcoord.SessionRestored](a)
	begun := time.Now()

	// Giving back is no loss.
	require.NoError(t, take(t, a, "k").Release(within(t, patience)))
	l, err := a.TryLead(within(t, patience), "role")
	require.NoError(t, err)
	g := got(t, gained)
	require.Equal(t, etcdcoord.LeadershipGained{At: g.At, Name: "role", Fence: l.Fence()}, g)
	recent(t, begun, g.At)
	require.NoError(t, l.Resign(within(t, patience)))

	turn := take(t, a, "k")
	l, err = a.TryLead(within(t, patience), "role")
	require.NoError(t, err)
	b.kill(a)
	lost := got(t, turnLost)
	require.Equal(t, etcdcoord.TurnLost{At: lost.At, Key: "k", Fence: turn.Fence(), Err: context.Cause(turn.Context())}, lost)
	var e *etcdcoord.LeaseLostError
	require.ErrorAs(t, lost.Err, &e)
	require.Equal(t, etcdcoord.Expired, e.Reason)
	recent(t, begun, lost.At)
	ll := got(t, leadLost)
	require.Equal(t, etcdcoord.LeadershipLost{At: ll.At, Name: "role", Fence: l.Fence(), Err: context.Cause(l.Context())}, ll)
	require.ErrorIs(t, ll.Err, etcdcoord.ErrLeaseLost)
	sl := got(t, sessionLost)
	require.Error(t, sl.Err)
	recent(t, begun, sl.At)
	r := got(t, restored)
	require.Equal(t, etcdcoord.SessionRestored{At: r.At, Gap: r.Gap}, r, "the same cluster")
	require.Positive(t, r.Gap)
	require.Less(t, r.Gap, time.Since(sl.At)+time.Minute)

	turn = take(t, a, "k")
	require.NoError(t, a.Stop(within(t, patience)))
	require.ErrorAs(t, got(t, turnLost).Err, &e)
	require.Equal(t, etcdcoord.Stopped, e.Reason)
	require.Equal(t, turn.Fence(), e.Token)
	require.Empty(t, sessionLost, "stopping is not losing")
	require.Empty(t, turnLost)
	require.Empty(t, leadLost)
}

func TestNothingIsDeliveredAfterUnsubscribe(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, _ := b.started("a")
	mine, unsubscribe := hear[etcdcoord.ReplicaJoined](a)
	all, _ := hear[etcdcoord.Event](a)
	b.started("b")
	require.Equal(t, "b", got(t, mine).Replica)
	got(t, all)
	unsubscribe()
	unsubscribe() // twice is once
	b.started("c")
	got(t, all)
	require.NoError(t, a.Stop(within(t, patience)))
	require.Empty(t, mine)
}

// Only once: the usual use of unsubscribing from inside.
func TestAListenerMayUnsubscribeItself(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, _ := b.started("a")
	heard := make(chan string, 10)
	ready := make(chan func(), 1)
	ready <- etcdcoord.On(a, func(e etcdcoord.ReplicaJoined) {
		(<-ready)()
		heard <- e.Replica
	})
	all, _ := hear[etcdcoord.ReplicaJoined](a)
	b.started("b")
	b.started("c")
	got(t, all)
	got(t, all)
	require.Equal(t, "b", got(t, heard))
	require.NoError(t, a.Stop(within(t, patience)))
	require.Empty(t, heard)
}

// Before Start, across Stop and Start again, and not to the listeners of another coordinator.
func TestASubscriptionBelongsToItsCoordinatorForGood(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, _ := b.replica("a")
	mine, _ := hear[etcdcoord.TurnLost](a)
	require.NoError(t, a.Start(within(t, patience)))
	other, _ := b.started("other")
	others, _ := hear[etcdcoord.TurnLost](other)
	for range 2 {
		turn := take(t, a, "k")
		require.NoError(t, a.Stop(within(t, patience)))
		require.Equal(t, turn.Fence(), got(t, mine).Fence)
		require.NoError(t, a.Start(within(t, patience)))
	}
	require.Empty(t, others)
	require.Empty(t, mine)
}

// What happened before is not told.
func TestAListenerHearsWhatComesAfterIt(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, _ := b.started("a")
	first, _ := hear[etcdcoord.Event](a)
	b.started("b")
	got(t, first)
	second, _ := hear[etcdcoord.Event](a)
	b.started("c")
	e, ok := got(t, second).(etcdcoord.ReplicaJoined)
	require.True(t, ok)
	require.Equal(t, "c", e.Replica)
}
