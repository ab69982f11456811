package integration_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// F1
func TestCampaignDoesNotWinOnASessionThatDiedWithEtcd(t *testing.T) {
	t.Parallel()
	const life, outage = 3 * time.Second, 6 * time.Second
	etcd := testetcd.New(t, testetcd.FastTicks)
	b := newBotOn(t, etcd)
	a, second := b.replica("a", ttl(life)), b.replica("b", ttl(life))
	first, err := a.Lead(soon(t), "cron")
	require.NoError(t, err)
	campaign := leading(soon(t), second, "cron")
	require.Eventually(t, func() bool { return len(b.keys("v1/elections/cron/")) == 2 }, patience, 5*time.Millisecond)

	down := time.Now()
	etcd.Member(0).Stop()
	lost(t, cause(t, first.Context()), etcdcoord.Expired)
	within(t, down, life, "the end of a leadership without etcd")
	<-time.After(outage - time.Since(down))
	notYet(t, campaign, "elected without etcd")
	require.NoError(t, etcd.Member(0).Restart())
	up := time.Now()
	won := elected(t, campaign)
	within(t, up, life+3*time.Second, "a new leader after the outage")
	require.NoError(t, won.AssertHeld())
	lost(t, first.AssertHeld(), etcdcoord.Expired)
	require.Greater(t, won.Fence(), first.Fence())
	b.leads(second, "cron", won)
	third := b.replica("c", ttl(life))
	_, err = third.TryLead(soon(t), "cron")
	require.ErrorIs(t, err, etcdcoord.ErrNotElected)
	last := leading(soon(t), third, "cron")
	require.NoError(t, won.Resign(soon(t)))
	require.Greater(t, elected(t, last).Fence(), won.Fence())
}

// F1, without an outage: whose key is gone does not win, however the others make room for it.
func TestCampaignWhoseKeyIsGoneDoesNotWinWithoutOne(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	leader, a := b.replica("leader"), b.replica("a")
	for range 5 {
		l, err := leader.Lead(soon(t), "cron")
		require.NoError(t, err)
		campaign := leading(soon(t), a, "cron")
		var candidates []string
		require.Eventually(t, func() bool { candidates = b.keys("v1/elections/cron/"); return len(candidates) == 2 }, patience, time.Millisecond)
		for _, candidate := range candidates {
			if b.revisionOf(candidate) != int64(l.Fence()) {
				b.delete(candidate)
			}
		}
		require.NoError(t, l.Resign(soon(t)))
		won := elected(t, campaign)
		b.leads(a, "cron", won)
		require.NoError(t, won.Resign(soon(t)))
	}
}

// leads asserts that the oldest candidate in etcd is the leadership's, on the live lease of c.
func (b *bot) leads(c *etcdcoord.Coordinator, name string, l *etcdcoord.Leadership) {
	b.t.Helper()
	answer, err := b.plain.Get(soon(b.t), b.prefix+"v1/elections/"+name+"/", clientv3.WithFirstCreate()...)
	require.NoError(b.t, err)
	require.Len(b.t, answer.Kvs, 1)
	kv := answer.Kvs[0]
	require.Equal(b.t, int64(l.Fence()), kv.CreateRevision)
	require.Equal(b.t, c.Stats().LeaseID, kv.Lease)
	require.Equal(b.t, c.ReplicaID(), string(kv.Value))
}

// reign is one leadership in TestThereAreNeverTwoLeaders.
type reign struct {
	*etcdcoord.Leadership
	byHand atomic.Bool // its lease is being revoked by hand, which its holder learns afterwards
}

func TestThereAreNeverTwoLeaders(t *testing.T) {
	t.Parallel()
	const replicas, handovers = 3, 20
	b := newBot(t)
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex // guards the fields below
		last    *reign
		reigned int
	)
	// begins looks at the former leader before anything else.
	begins := func(l *etcdcoord.Leadership) (*reign, error) {
		mu.Lock()
		defer mu.Unlock()
		before := last
		last = &reign{Leadership: l}
		reigned++
		switch {
		case before == nil:
		case before.Context().Err() == nil && !before.byHand.Load():
			return last, fmt.Errorf("%d begins while %d leads", l.Fence(), before.Fence())
		case l.Fence() <= before.Fence():
			return last, fmt.Errorf("%d after %d", l.Fence(), before.Fence())
		}
		return last, l.AssertHeld()
	}
	for i := range replicas {
		c := b.replica(fmt.Sprint("replica-", i))
		wg.Go(func() {
			for n := range handovers {
				l, err := c.Lead(soon(t), "cron")
				if err != nil {
					t.Errorf("lead: %v", err)
					return
				}
				r, err := begins(l)
				if err == nil {
					err = b.abdicate(c, r, n)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, replicas*handovers, reigned)
	require.Empty(t, b.keys("v1/elections/"))
}

// abdicate ends a leadership in one of three ways.
func (b *bot) abdicate(c *etcdcoord.Coordinator, r *reign, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reason := etcdcoord.Stopped
	switch n % 10 {
	case 3, 7:
		if err := errors.Join(c.Stop(ctx), c.Start(ctx)); err != nil {
			return err
		}
	case 5:
		reason = etcdcoord.Expired
		r.byHand.Store(true)
		if _, err := b.plain.Revoke(ctx, clientv3.LeaseID(c.Stats().LeaseID)); err != nil {
			return err
		}
		select {
		case <-r.Context().Done():
		case <-ctx.Done():
			return errors.New("a revoked lease was not noticed")
		}
	default:
		return r.Resign(ctx)
	}
	var lost *etcdcoord.LeaseLostError
	if !errors.As(r.AssertHeld(), &lost) || lost.Reason != reason {
		return fmt.Errorf("lost as %v, not as %v", r.AssertHeld(), reason)
	}
	return nil
}

func TestCompetitorsOnOneCoordinatorNeverBothWin(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a")
	const competitors = 10
	var (
		wg       sync.WaitGroup
		inOffice atomic.Int64
		mu       sync.Mutex
		fences   = make(map[etcdcoord.Token]bool)
	)
	for i := range competitors {
		wg.Go(func() {
			var l *etcdcoord.Leadership
			err := etcdcoord.ErrNotElected
			for i%2 == 0 && errors.Is(err, etcdcoord.ErrNotElected) { // every other one tries again and again
				l, err = a.TryLead(soon(t), "cron")
			}
			if l == nil {
				l, err = a.Lead(soon(t), "cron")
			}
			if err != nil {
				t.Error(err)
				return
			}
			if n := inOffice.Add(1); n != 1 {
				t.Errorf("%d leaders", n)
			}
			mu.Lock()
			fences[l.Fence()] = true
			mu.Unlock()
			if _, err := a.TryLead(soon(t), "cron"); !errors.Is(err, etcdcoord.ErrNotElected) {
				t.Errorf("beside a leader: %v", err)
			}
			inOffice.Add(-1)
			if err := l.Resign(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Len(t, fences, competitors, "each has a fence of its own")
	require.Empty(t, b.keys("v1/elections/"))
	require.Zero(t, a.Stats().Leading+a.Stats().Campaigning)
}

func TestOneOfManyWhoTryIsElectedAndTheOthersLeaveNothing(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	const replicas = 4
	won := make(chan *etcdcoord.Leadership, replicas)
	var wg sync.WaitGroup
	for i := range replicas {
		c := b.replica(fmt.Sprint("replica-", i))
		wg.Go(func() {
			l, err := c.TryLead(soon(t), "cron")
			switch {
			case err == nil:
				won <- l
			case !errors.Is(err, etcdcoord.ErrNotElected):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Len(t, won, 1)
	require.Len(t, b.keys("v1/elections/"), 1)
	require.NoError(t, (<-won).Resign(soon(t)))
	require.Empty(t, b.keys("v1/elections/"))
}

func TestCampaignThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	leader, a := b.replica("leader"), b.replica("a")
	l, err := leader.Lead(soon(t), "cron")
	require.NoError(t, err)
	late, cancelLate := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancelLate()
	_, err = a.Lead(late, "cron")
	require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	cancelled, cancel := context.WithCancelCause(t.Context())
	campaign := leading(cancelled, a, "cron")
	require.Eventually(t, func() bool { return len(b.keys("v1/elections/cron/")) == 2 }, patience, 5*time.Millisecond)
	cancel(errWhy)
	require.ErrorIs(t, got(t, campaign).err, errWhy)
	require.Eventually(t, func() bool { return len(b.keys("v1/elections/cron/")) == 1 }, patience, 5*time.Millisecond)
	b.leads(leader, "cron", l)
	require.NoError(t, l.AssertHeld())
}

// Whoever knows concurrency.Election, as etcdctl does, sees who leads, and can compete.
func TestElectionsAreThoseOfTheStockElection(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a")
	l, err := a.Lead(soon(t), "cron job")
	require.NoError(t, err)
	session, err := concurrency.NewSession(b.plain, concurrency.WithTTL(10))
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	stock := concurrency.NewElection(session, b.prefix+"v1/elections/cron%20job")
	leader, err := stock.Leader(soon(t))
	require.NoError(t, err)
	require.Equal(t, "a", string(leader.Kvs[0].Value))
	campaign := make(chan error, 1)
	go func() { campaign <- stock.Campaign(soon(t), "stock") }()
	require.Eventually(t, func() bool { return len(b.keys("v1/elections/")) == 2 }, patience, 5*time.Millisecond)
	require.NoError(t, l.Resign(soon(t)))
	require.NoError(t, got(t, campaign))
	_, err = a.TryLead(soon(t), "cron job")
	require.ErrorIs(t, err, etcdcoord.ErrNotElected)
	again := leading(soon(t), a, "cron job")
	require.NoError(t, stock.Resign(soon(t)))
	require.Greater(t, elected(t, again).Fence(), l.Fence())
}
