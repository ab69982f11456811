package election_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/election"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// through is a client that reaches the cluster's first member through proxies only.
func through(t *testing.T, cluster *testetcd.Cluster, proxies ...*faultproxy.Proxy) *clientv3.Client {
	t.Helper()
	return cluster.Client(t, func(cfg *clientv3.Config) {
		cfg.Endpoints = nil
		for _, p := range proxies {
			cfg.Endpoints = append(cfg.Endpoints, p.Endpoint())
		}
	})
}

func TestEveryCallReturnsByItsContextInABlackHole(t *testing.T) {
	t.Parallel()
	cluster, prefix := testetcd.Shared(t), testetcd.Prefix(t)
	proxy := faultproxy.Before(t, cluster.Endpoints()[0])
	// A long session, so that it is the contexts that end the calls.
	a := join(t, through(t, cluster, proxy), prefix, "a", ttl(20*time.Second))
	b := join(t, cluster.Client(t), prefix, "b")
	held, err := a.Lead(t.Context(), "held")
	require.NoError(t, err)
	_, err = b.Lead(t.Context(), "waited")
	require.NoError(t, err)
	waiting, cancel := context.WithCancel(t.Context())
	p := a.goLead(waiting, "waited")
	a.campaigns(t, "waited")
	proxy.Hold()

	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	began := time.Now()
	cancel()
	require.ErrorIs(t, p.fails(t), context.Canceled)
	for call, run := range map[string]func() error{
		"Lead":          func() error { _, err := a.Lead(soon(), "x"); return err },
		"TryLead":       func() error { _, err := a.TryLead(soon(), "y"); return err },
		"Lead again":    func() error { _, err := a.Lead(soon(), "waited"); return err },
		"TryLead again": func() error { _, err := a.TryLead(soon(), "waited"); return err },
		"Resign":        func() error { return held.Resign(soon()) },
	} {
		err := run()
		require.ErrorIs(t, err, fencing.ErrUnavailable, call)
		require.ErrorIs(t, err, context.DeadlineExceeded, call)
	}
	require.Less(t, time.Since(began), 3*time.Second)

	trying := make(chan error, 1)
	go func() {
		_, err := a.TryLead(within(t, patience), "z")
		trying <- err
	}()
	campaign := a.goLead(t.Context(), "zz")
	eventually(t, "it campaigns", func() bool { _, c := a.Counts(); return c == 1 })
	began = time.Now()
	a.End(fencing.Stopped, nil)
	require.ErrorIs(t, campaign.fails(t), election.ErrSessionEnded)
	require.ErrorIs(t, <-trying, election.ErrSessionEnded)
	a.Close()
	require.Less(t, time.Since(began), time.Second, "nothing waits for what etcd must answer")
	proxy.Heal()
}

func TestWhatWasLeftBehindInABlackHoleGoesWhenItHeals(t *testing.T) {
	t.Parallel()
	cluster, prefix := testetcd.Shared(t), testetcd.Prefix(t)
	proxy := faultproxy.Before(t, cluster.Endpoints()[0])
	a := join(t, through(t, cluster, proxy), prefix, "a", ttl(20*time.Second), requestTimeout(500*time.Millisecond))
	b := join(t, cluster.Client(t), prefix, "b")
	_, err := a.TryLead(t.Context(), "warm") // a connection, so that what follows is sent at once
	require.NoError(t, err)

	proxy.Hold(faultproxy.ToClient)
	for i := range 3 {
		_, err := a.TryLead(t.Context(), fmt.Sprint("n", i))
		require.ErrorIs(t, err, fencing.ErrUnavailable)
	}
	require.Len(t, candidates(t, b.client, b.schema, "n0"), 1, "it was applied, without anybody knowing")
	proxy.Resume(faultproxy.ToClient)
	for i := range 3 {
		eventually(t, "no ghost is left", func() bool {
			return len(candidates(t, b.client, b.schema, fmt.Sprint("n", i))) == 0
		})
	}
	require.Len(t, a.heard(), 1)
}

// etcd#19597, PR #22387: after an outage that outlived its session, Campaign returns nil without a key.
func TestNobodyWinsOnADeadSession(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks)
	a := join(t, cluster.Client(t), "/p/", "a", ttl(2*time.Second), requestTimeout(time.Second))
	b := join(t, cluster.Client(t), "/p/", "b", ttl(2*time.Second), requestTimeout(time.Second))
	first, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	p := b.goLead(t.Context(), "n")
	b.campaigns(t, "n")

	cluster.Member(0).Stop()
	requireLost(t, first, fencing.Expired)
	require.ErrorIs(t, p.fails(t), election.ErrSessionEnded)
	require.NoError(t, cluster.Member(0).Restart())

	c := join(t, cluster.Client(t), "/p/", "c")
	third, err := c.Lead(within(t, patience), "n")
	require.NoError(t, err)
	require.Greater(t, third.Fence(), first.Fence())
	require.Empty(t, b.heard())
}

// etcd#9715, #21128
func TestOutageAndCompactionCostNoPlaceAndNoError(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks)
	proxy := faultproxy.Before(t, cluster.Endpoints()[0])
	direct := cluster.Client(t)
	a := join(t, direct, "/p/", "a", ttl(20*time.Second))
	b := join(t, through(t, cluster, proxy), "/p/", "b", ttl(20*time.Second), requestTimeout(time.Second))
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	p := b.goLead(t.Context(), "n")
	rev := b.campaigns(t, "n")

	proxy.Down()
	var put *clientv3.PutResponse
	for range 10 {
		put, err = direct.Put(t.Context(), "/other", "x")
		require.NoError(t, err)
	}
	_, err = direct.Compact(t.Context(), put.Header.Revision)
	require.NoError(t, err)
	proxy.Heal()
	require.NoError(t, cluster.Member(0).Restart())
	p.waits(t)
	require.NoError(t, l.Resign(within(t, patience)))
	require.EqualValues(t, rev, p.wins(t).Fence())
}

// milvus#29345, cilium#12947: the endpoint that carries the watch hangs, another one is healthy.
func TestAHangingWatchDoesNotKeepTheHeadWaiting(t *testing.T) {
	t.Parallel()
	cluster, prefix := testetcd.Shared(t), testetcd.Prefix(t)
	proxies := []*faultproxy.Proxy{
		faultproxy.Before(t, cluster.Endpoints()[0]), faultproxy.Before(t, cluster.Endpoints()[0]),
	}
	a := join(t, cluster.Client(t), prefix, "a")
	b := join(t, through(t, cluster, proxies...), prefix, "b", ttl(20*time.Second), requestTimeout(500*time.Millisecond))
	const names = 6 // each with a watch of its own, on one connection or the other
	var led []*election.Leadership
	var waiting []*leading
	for i := range names {
		l, err := a.Lead(t.Context(), fmt.Sprint("n", i))
		require.NoError(t, err)
		led = append(led, l)
		waiting = append(waiting, b.goLead(t.Context(), l.Name()))
	}
	revs := make([]int64, names)
	for i, l := range led {
		revs[i] = b.campaigns(t, l.Name())
	}
	// What is open on both hangs. The client does not leave a connection that hangs, so it gets a fresh
	// one in place of the first; whoever watches on the second learns nothing.
	for _, proxy := range proxies {
		proxy.HoldExisting(faultproxy.ToClient)
	}
	for _, l := range led {
		require.NoError(t, l.Resign(t.Context()))
	}
	proxies[0].Cut()
	began := time.Now()
	for i, p := range waiting {
		require.EqualValues(t, revs[i], p.wins(t).Fence())
	}
	t.Logf("all won within %v after the hand-over", time.Since(began))
}
