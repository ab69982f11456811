package integration_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// noticed is how long what is done by hand with another client may stay unnoticed.
const noticed = 2 * time.Second

// delete deletes one key by hand.
func (b *bot) delete(key string) {
	b.t.Helper()
	answer, err := b.plain.Delete(soon(b.t), b.prefix+key)
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, answer.Deleted, key)
}

// F7
func TestTicketDeletedByHandEvictsItsHolderAndTheNextProceeds(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, next := b.replica("a", ttl(30*time.Second)), b.replica("b", ttl(30*time.Second))
	turn := take(t, a, "chat")
	held := b.tickets()
	require.Len(t, held, 1)
	events := collect[etcdcoord.TurnLost](t, a)
	local, remote := reserve(t, a, "chat"), reserve(t, next, "chat")
	first, second := acquiring(soon(t), a, local), acquiring(soon(t), next, remote)

	began := time.Now()
	b.delete(held[0])
	lost(t, cause(t, turn.Context()), etcdcoord.Evicted)
	within(t, began, noticed, "eviction of a holder")
	lost(t, turn.AssertHeld(), etcdcoord.Evicted)
	e := got(t, events)
	require.Equal(t, etcdcoord.TurnLost{At: e.At, Key: "chat", Fence: turn.Fence(), Err: context.Cause(turn.Context())}, e)
	nextTurn := acquired(t, first)
	require.Greater(t, nextTurn.Fence(), turn.Fence())
	require.NoError(t, turn.Release(soon(t)))
	require.NoError(t, nextTurn.AssertHeld())
	require.Len(t, b.tickets(), 2, "a late release deleted something")

	// The same for a holder with nobody of its own replica behind it.
	began = time.Now()
	for _, ticket := range b.tickets() {
		if b.revisionOf(ticket) == int64(nextTurn.Fence()) {
			b.delete(ticket)
		}
	}
	last := acquired(t, second)
	within(t, began, noticed, "the turn of the next in line")
	require.Greater(t, last.Fence(), nextTurn.Fence())
	lost(t, cause(t, nextTurn.Context()), etcdcoord.Evicted)
	require.NoError(t, nextTurn.Release(soon(t)))
	require.NoError(t, last.AssertHeld())
	release(t, last)
	b.noTickets()
}

// revisionOf is the create revision of a key.
func (b *bot) revisionOf(key string) int64 {
	b.t.Helper()
	answer, err := b.plain.Get(soon(b.t), b.prefix+key)
	require.NoError(b.t, err)
	require.Len(b.t, answer.Kvs, 1)
	return answer.Kvs[0].CreateRevision
}

// F7
func TestLeaderKeyDeletedByHandEvictsTheLeader(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, next := b.replica("a", ttl(30*time.Second)), b.replica("b", ttl(30*time.Second))
	leadership, err := a.Lead(soon(t), "cron")
	require.NoError(t, err)
	own := b.keys("v1/elections/cron/")
	require.Len(t, own, 1)
	events := collect[etcdcoord.LeadershipLost](t, a)
	campaign := leading(soon(t), next, "cron")
	require.Eventually(t, func() bool { return len(b.keys("v1/elections/cron/")) == 2 }, patience, 5*time.Millisecond)

	began := time.Now()
	b.delete(own[0])
	lost(t, cause(t, leadership.Context()), etcdcoord.Evicted)
	within(t, began, noticed, "eviction of a leader")
	e := got(t, events)
	require.Equal(t, "cron", e.Name)
	require.Equal(t, leadership.Fence(), e.Fence)
	lost(t, e.Err, etcdcoord.Evicted)
	nextLeader := elected(t, campaign)
	require.Greater(t, nextLeader.Fence(), leadership.Fence())
	require.NoError(t, leadership.Resign(soon(t)))
	require.NoError(t, nextLeader.AssertHeld())
	require.Len(t, b.keys("v1/elections/cron/"), 1)
}

// lyingLease says that everything is well with every lease.
type lyingLease struct{ clientv3.Lease }

func (lyingLease) KeepAliveOnce(_ context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	return &clientv3.LeaseKeepAliveResponse{ID: id, TTL: 30}, nil
}

// F13: what is in etcd counts, not what the renewals say.
func TestLeaseThatVanishesWhileRenewalsSeemFineIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	client := b.etcd.Client(t)
	client.Lease = lyingLease{client.Lease}
	a := b.replicaOn(client, "a", ttl(30*time.Second))
	restored := collect[etcdcoord.SessionRestored](t, a)
	turn := take(t, a, "chat")
	leadership, err := a.Lead(soon(t), "cron")
	require.NoError(t, err)
	began := time.Now()
	b.revoke(a)
	lost(t, cause(t, turn.Context()), etcdcoord.Expired)
	lost(t, cause(t, leadership.Context()), etcdcoord.Expired)
	within(t, began, noticed, "the loss")
	got(t, restored)
	require.Greater(t, take(t, a, "chat").Fence(), turn.Fence())
}

// F13
func TestRevokedLeaseIsNoticedByAnIdleReplicaWithinARenewPeriod(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a", ttl(3*time.Second), renewEvery(500*time.Millisecond))
	gone, restored := collect[etcdcoord.SessionLost](t, a), collect[etcdcoord.SessionRestored](t, a)
	before := a.Stats().LeaseID
	began := time.Now()
	b.revoke(a)
	require.Error(t, got(t, gone).Err)
	within(t, began, 500*time.Millisecond, "the loss")
	require.False(t, got(t, restored).ClusterChanged)
	require.NotEqual(t, before, a.Stats().LeaseID)
	release(t, take(t, a, "chat"))
}

// grantingLease counts grants, and refuses them when told to.
type grantingLease struct {
	clientv3.Lease
	asked   atomic.Int64
	refuses atomic.Bool
}

var errRefused = errors.New("no leases today")

func (l *grantingLease) Grant(ctx context.Context, seconds int64) (*clientv3.LeaseGrantResponse, error) {
	l.asked.Add(1)
	if l.refuses.Load() {
		return nil, errRefused
	}
	return l.Lease.Grant(ctx, seconds)
}

// F27: the revoked lease is found by the Reserve itself.
func TestReserveOnARevokedLeaseSucceedsInANewEpoch(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	client := b.etcd.Client(t)
	grants := &grantingLease{Lease: client.Lease}
	client.Lease = grants
	a := b.replicaOn(client, "a", ttl(30*time.Second))
	restored := collect[etcdcoord.SessionRestored](t, a)
	before := grants.asked.Load()
	b.revoke(a)
	turn := take(t, a, "chat")
	require.NoError(t, turn.AssertHeld())
	got(t, restored)
	require.EqualValues(t, 1, a.Stats().SessionsLost)
	require.Less(t, grants.asked.Load()-before, int64(5))
	release(t, turn)
}

// F27: no storm of grants against an etcd that refuses them.
func TestHealingAgainstRefusedGrantsIsPatient(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	client := b.etcd.Client(t)
	grants := &grantingLease{Lease: client.Lease}
	client.Lease = grants
	a := b.replicaOn(client, "a", ttl(3*time.Second), renewEvery(200*time.Millisecond))
	gone := collect[etcdcoord.SessionLost](t, a)
	release(t, take(t, a, "chat"))
	before := grants.asked.Load()
	grants.refuses.Store(true)
	b.revoke(a)
	got(t, gone)
	began := time.Now()
	reserved := make(chan error, 1)
	go func() {
		ticket, err := a.Reserve(soon(t), "chat")
		if err == nil {
			err = ticket.Cancel(soon(t))
		}
		reserved <- err
	}()
	<-time.After(5*time.Second - time.Since(began))
	asked := grants.asked.Load() - before
	require.NotZero(t, asked)
	require.Less(t, asked, int64(5), "grants in 5 s")
	notYet(t, reserved, "there is no session")
	grants.refuses.Store(false)
	require.NoError(t, got(t, reserved))
	b.noTickets()
}

// F28
func TestGivingBackWorksWithAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, other := b.replica("a"), b.replica("b")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelLate()
	for _, ctx := range []context.Context{cancelled, late} {
		turn, ticket := take(t, a, "released"), reserve(t, a, "cancelled")
		leadership, err := a.Lead(soon(t), "resigned")
		require.NoError(t, err)
		lease, err := a.Leases().Acquire(soon(t), "lease", "me", time.Minute)
		require.NoError(t, err)
		waits, campaign := acquiring(soon(t), other, reserve(t, other, "released")), leading(soon(t), other, "resigned")
		require.NoError(t, turn.Release(ctx))
		require.NoError(t, ticket.Cancel(ctx))
		require.NoError(t, leadership.Resign(ctx))
		require.NoError(t, a.Leases().Release(ctx, "lease", "me", lease.Token))
		require.ErrorIs(t, turn.AssertHeld(), etcdcoord.ErrReleased)
		require.ErrorIs(t, leadership.AssertHeld(), etcdcoord.ErrReleased)
		require.Empty(t, b.keys("v1/turns/cancelled/tickets/"))
		require.Empty(t, b.keys("v1/leases/"))
		release(t, acquired(t, waits))
		require.NoError(t, elected(t, campaign).Resign(ctx))
		require.Empty(t, b.keys("v1/elections/"))
	}
	require.NoError(t, a.Stop(cancelled))
	require.Len(t, b.keys("v1/replicas/"), 1)
}

// B8: not to lead is no failure.
func TestFollowersAreHealthy(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	leader, follower := b.replica("a"), b.replica("b")
	leadership, err := leader.TryLead(soon(t), "poller")
	require.NoError(t, err)
	key := b.keys("v1/elections/")
	for range 5 {
		l, err := follower.TryLead(soon(t), "poller")
		require.ErrorIs(t, err, etcdcoord.ErrNotElected)
		require.NotErrorIs(t, err, etcdcoord.ErrUnavailable)
		require.Nil(t, l)
		require.Equal(t, key, b.keys("v1/elections/"), "a loser left something")
	}
	s := follower.Stats()
	require.Equal(t, "running", s.State)
	require.Zero(t, s.SessionsLost)
	require.Zero(t, s.Leading+s.Campaigning)
	release(t, take(t, follower, "chat"))
	require.NoError(t, leadership.Resign(soon(t)))
	won, err := follower.TryLead(soon(t), "poller")
	require.NoError(t, err)
	require.Greater(t, won.Fence(), leadership.Fence())
}
