package testetcd_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks)) }

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func only(endpoints ...string) func(*clientv3.Config) {
	return func(cfg *clientv3.Config) { cfg.Endpoints = endpoints }
}

func put(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	_, err := client.Put(soon(t), key, value)
	require.NoError(t, err)
}

func requireValue(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	got, err := client.Get(soon(t), key)
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	require.Equal(t, value, string(got.Kvs[0].Value))
}

func TestSharedClusterAnswersAndPrefixesDiffer(t *testing.T) {
	t.Parallel()
	require.Same(t, testetcd.Shared(t), testetcd.Shared(t))
	a, b := testetcd.Prefix(t), testetcd.Prefix(t)
	require.NotEqual(t, a, b)
	require.True(t, strings.HasPrefix(a, "/") && strings.HasSuffix(a, "/"), a)
	client := testetcd.Shared(t).Client(t)
	put(t, client, a+"k", "v")
	requireValue(t, client, a+"k", "v")
}

func TestAdvertisedEndpointsAreReal(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.FastTicks)
	client := c.Client(t)
	require.NoError(t, client.Sync(soon(t)))
	require.Equal(t, []string{"http://" + c.Member(0).Endpoint()}, client.Endpoints())
	put(t, client, "k", "v")
}

func TestThreeMembersAgreeAndSurviveTheirLeader(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.ThreeMembers)
	put(t, c.Client(t), "k", "v")
	for _, m := range c.Members() {
		requireValue(t, c.Client(t, only(m.Endpoint())), "k", "v")
	}
	old, err := c.WaitLeader(soon(t))
	require.NoError(t, err)
	require.True(t, old.IsLeader())
	old.Stop()
	require.False(t, old.IsLeader())
	require.Zero(t, old.ID())
	next, err := c.WaitLeader(soon(t))
	require.NoError(t, err)
	require.NotSame(t, old, next)
	put(t, c.Client(t, only(next.Endpoint())), "k", "w")

	require.NoError(t, old.Restart())
	requireValue(t, c.Client(t, only(old.Endpoint())), "k", "w")
}

func TestIsolatedLeaderIsReplacedAndRejoins(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.ThreeMembers)
	old, err := c.WaitLeader(soon(t))
	require.NoError(t, err)
	old.Isolate()
	lonely := c.Client(t, only(old.Endpoint()))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = lonely.Put(ctx, "k", "minority")
	require.Error(t, err, "the client and the server time out together; either may be first")

	require.Eventually(t, func() bool { l := c.Leader(); return l != nil && l != old }, patience, 5*time.Millisecond)
	put(t, c.Client(t, only(c.Leader().Endpoint())), "k", "majority")
	old.Rejoin()
	requireValue(t, lonely, "k", "majority")
}

func TestRestartKeepsDataAndPorts(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.FastTicks)
	client := c.Client(t)
	put(t, client, "k", "v")
	endpoints, peer, id := c.Endpoints(), c.Member(0).PeerURL(), c.Member(0).ID()
	require.NoError(t, c.Member(0).Restart())
	require.Equal(t, endpoints, c.Endpoints())
	require.Equal(t, peer, c.Member(0).PeerURL())
	require.Equal(t, id, c.Member(0).ID())
	requireValue(t, client, "k", "v")
}

func TestAllMembersMayStopAndComeBack(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.ThreeMembers, testetcd.FastTicks)
	put(t, c.Client(t), "k", "v")
	for _, m := range c.Members() {
		m.Stop()
	}
	require.Nil(t, c.Leader())
	require.NoError(t, c.Member(1).Restart(), "alone it cannot serve, and Restart does not wait for that")
	require.True(t, c.Member(1).Running())
	require.NoError(t, c.Restart())
	requireValue(t, c.Client(t), "k", "v")
}

func TestCloseDoesNotWaitForOpenStreams(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]testetcd.Option{
		"one":   {testetcd.FastTicks},
		"three": {testetcd.FastTicks, testetcd.ThreeMembers},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testetcd.New(t, opts...)
			client := c.Client(t)
			lease, err := client.Grant(soon(t), 10)
			require.NoError(t, err)
			renewals, err := client.KeepAlive(t.Context(), lease.ID)
			require.NoError(t, err)
			require.NotNil(t, <-renewals)
			require.True(t, (<-client.Watch(t.Context(), "k", clientv3.WithCreatedNotify())).Created)

			began := time.Now()
			require.NoError(t, c.Close())
			took := time.Since(began)
			t.Logf("closed in %v", took)
			require.Less(t, took, time.Second)
			require.NoError(t, c.Close())
			require.ErrorIs(t, c.Member(0).Restart(), testetcd.ErrClosed)
		})
	}
}

func TestCloseDoesNotHangOnMembersWithoutMajority(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.ThreeMembers, testetcd.FastTicks)
	for _, m := range c.Members() {
		m.Stop()
	}
	require.NoError(t, c.Member(0).Restart())
	began := time.Now()
	require.NoError(t, c.Close())
	require.Less(t, time.Since(began), 2*time.Second)
}

func TestVerbsMayRace(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.FastTicks)
	m := c.Member(0)
	var work sync.WaitGroup
	for range 3 {
		work.Go(func() {
			for range 4 {
				_ = m.Restart() // another may stop it while this one waits
				_, _, _ = m.IsLeader(), m.ID(), c.Leader()
				m.Stop()
			}
		})
	}
	work.Wait()
	require.NoError(t, c.Restart())
	put(t, c.Client(t), "k", "v")
}

func TestManyClustersStartAtOnce(t *testing.T) {
	t.Parallel()
	for range 6 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			put(t, testetcd.New(t, testetcd.FastTicks).Client(t), "k", "v")
		})
	}
}
