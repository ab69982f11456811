package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/fencing/fencingtest"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func TestLeasesOfTwoCoordinatorsObeyAllLaws(t *testing.T) {
	t.Parallel()
	client, otherClient := testetcd.Shared(t).Client(t), testetcd.Shared(t).Client(t)
	fencingtest.Run(t, func(fencingtest.T) fencingtest.Harness {
		b := newBot(t)
		return fencingtest.Harness{
			Provider: b.replicaOn(client, "a").Leases(),
			Other:    b.replicaOn(otherClient, "b").Leases(),
			TTL:      3 * time.Second, // the machine is busy with the other tests
		}
	})
}

func TestLeasesSayThatTheCoordinatorIsNotStartedOrStopped(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.unstarted(b.etcd.Client(t), "a")
	leases := c.Leases()
	all := func(want error) {
		t.Helper()
		_, err := leases.Acquire(soon(t), "lease", "me", time.Minute)
		require.ErrorIs(t, err, want)
		_, err = leases.Renew(soon(t), "lease", "me", 1, time.Minute)
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, leases.Release(soon(t), "lease", "me", 1), want)
	}
	all(etcdcoord.ErrNotStarted)
	require.NoError(t, c.Start(soon(t)))
	g, err := leases.Acquire(soon(t), "lease", "me", time.Minute)
	require.NoError(t, err)
	require.NoError(t, c.Stop(soon(t)))
	all(etcdcoord.ErrStopped)
	require.NoError(t, c.Start(soon(t)))
	t.Cleanup(func() { stop(t, c) })
	renewed, err := leases.Renew(soon(t), "lease", "me", g.Token, time.Minute)
	require.NoError(t, err, "the same Leases after another Start")
	require.Equal(t, g.Token, renewed.Token)
	require.NoError(t, leases.Release(soon(t), "lease", "me", g.Token))
}

func TestLeasesOutliveStopAndBelongToTheirOwner(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, other := b.replica("a"), b.replica("b")
	g, err := a.Leases().Acquire(soon(t), "shard 1", "worker", time.Minute)
	require.NoError(t, err)
	require.NoError(t, a.Stop(soon(t)))
	_, err = other.Leases().Acquire(soon(t), "shard 1", "somebody else", time.Minute)
	require.ErrorIs(t, err, etcdcoord.ErrHeld)
	same, err := other.Leases().Acquire(soon(t), "shard 1", "worker", time.Minute)
	require.NoError(t, err, "its owner, on another replica")
	require.Equal(t, g.Token, same.Token)
	require.NoError(t, other.Leases().Release(soon(t), "shard 1", "worker", g.Token))
	next, err := other.Leases().Acquire(soon(t), "shard 1", "somebody else", time.Minute)
	require.NoError(t, err)
	require.Greater(t, next.Token, g.Token)
}

func TestLeasesOutliveALostSession(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a")
	restored := collect[etcdcoord.SessionRestored](t, a)
	turn := take(t, a, "chat")
	g, err := a.Leases().Acquire(soon(t), "shard 1", "worker", time.Minute)
	require.NoError(t, err)
	b.revoke(a)
	lost(t, cause(t, turn.Context()), etcdcoord.Expired)
	got(t, restored)
	_, err = a.Leases().Renew(soon(t), "shard 1", "worker", g.Token, time.Minute)
	require.NoError(t, err)
}

func TestLeasesShareTheirKeysWithAProviderOfTheSamePrefix(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a")
	provider, err := fencing.NewLeaseProvider(b.plain, fencing.LeaseConfig{Prefix: b.prefix})
	require.NoError(t, err)
	t.Cleanup(provider.Close)
	g, err := provider.Acquire(soon(t), "shard 1", "worker", time.Minute)
	require.NoError(t, err)
	_, err = a.Leases().Acquire(soon(t), "shard 1", "somebody else", time.Minute)
	require.ErrorIs(t, err, etcdcoord.ErrHeld)
	_, err = a.Leases().Renew(soon(t), "shard 1", "worker", g.Token, time.Minute)
	require.NoError(t, err)
	require.NoError(t, a.Leases().Release(soon(t), "shard 1", "worker", g.Token))
	next, err := provider.Acquire(soon(t), "shard 1", "somebody else", time.Minute)
	require.NoError(t, err)
	require.Greater(t, next.Token, g.Token)
	require.Len(t, b.keys("v1/leases/"), 1)
}

// Far below the least that etcd grants, which is a second here.
func TestLeaseOfAFifthOfASecondIsOne(t *testing.T) {
	t.Parallel()
	const short = 200 * time.Millisecond
	b := newBot(t)
	a, other := b.replica("a"), b.replica("b")
	began := time.Now()
	g, err := a.Leases().Acquire(soon(t), "shard 1", "worker", short)
	for errors.Is(err, context.DeadlineExceeded) && time.Since(began) < patience { // a busy etcd took longer than that
		began = time.Now()
		g, err = a.Leases().Acquire(soon(t), "shard 1", "worker", short)
	}
	require.NoError(t, err)
	require.False(t, g.Until.Before(began.Add(short)))
	require.LessOrEqual(t, g.Left(), short)
	for {
		next, err := other.Leases().Acquire(soon(t), "shard 1", "somebody else", time.Minute)
		if err == nil {
			require.False(t, time.Now().Before(g.Until), "granted before the former one ended")
			require.Zero(t, g.Left())
			require.Greater(t, next.Token, g.Token)
			break
		}
		require.ErrorIs(t, err, etcdcoord.ErrHeld)
		<-time.After(5 * time.Millisecond)
	}
	within(t, g.Until, 0, "somebody else's grant after the end")
	_, err = a.Leases().Renew(soon(t), "shard 1", "worker", g.Token, short)
	lost(t, err, etcdcoord.Expired)
}

func TestLeaseIsRenewedAndHeldAcrossManyTTLs(t *testing.T) {
	t.Parallel()
	const life, rounds = 2 * time.Second, 6
	b := newBot(t)
	a, other := b.replica("a"), b.replica("b")
	g, err := a.Leases().Acquire(soon(t), "shard 1", "worker", life)
	require.NoError(t, err)
	for range rounds {
		<-time.After(time.Until(g.Until) / 4)
		_, err := other.Leases().Acquire(soon(t), "shard 1", "somebody else", time.Minute)
		require.ErrorIs(t, err, etcdcoord.ErrHeld)
		token := g.Token
		g, err = a.Leases().Renew(soon(t), "shard 1", "worker", token, life)
		require.NoError(t, err)
		require.Equal(t, token, g.Token)
	}
}
