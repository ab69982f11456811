package testetcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks)) }

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestItAnswers(t *testing.T) {
	t.Parallel()
	client, key := testetcd.Shared(t).Client(t), testetcd.Prefix(t)+"k"
	_, err := client.Put(within(t, 10*time.Second), key, "v")
	require.NoError(t, err)
	got, err := client.Get(within(t, 10*time.Second), key)
	require.NoError(t, err)
	require.Equal(t, "v", string(got.Kvs[0].Value))
}

func TestThreeMembersAgree(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.ThreeMembers)
	_, err := c.Client(t).Put(within(t, 20*time.Second), "k", "v")
	require.NoError(t, err)
	for _, m := range c.Members() {
		client := c.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{m.Endpoint()} })
		got, err := client.Get(within(t, 20*time.Second), "k")
		require.NoError(t, err)
		require.Equal(t, "v", string(got.Kvs[0].Value))
	}
	require.NotNil(t, c.Leader())
}

func TestRestartKeepsDataAndPort(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.FastTicks)
	client := c.Client(t)
	_, err := client.Put(within(t, 10*time.Second), "k", "v")
	require.NoError(t, err)
	before := c.Endpoints()
	require.NoError(t, c.Member(0).Restart())
	require.Equal(t, before, c.Endpoints())
	got, err := client.Get(within(t, 10*time.Second), "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(got.Kvs[0].Value))
}

func TestCloseDoesNotWaitForOpenStreams(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.FastTicks)
	client := c.Client(t)
	lease, err := client.Grant(within(t, 10*time.Second), 10)
	require.NoError(t, err)
	renewals, err := client.KeepAlive(t.Context(), lease.ID)
	require.NoError(t, err)
	require.NotNil(t, <-renewals)
	created := <-client.Watch(t.Context(), "k", clientv3.WithCreatedNotify())
	require.True(t, created.Created)

	began := time.Now()
	require.NoError(t, c.Close())
	t.Logf("closed in %v", time.Since(began))
	require.Less(t, time.Since(began), time.Second)
	require.NoError(t, c.Close())
}
