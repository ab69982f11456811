package faultproxy_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// proxied gives a client that reaches the shared etcd through a proxy, one that goes straight,
// and a key.
func proxied(t *testing.T) (p *faultproxy.Proxy, through, direct *clientv3.Client, key string) {
	cluster := testetcd.Shared(t)
	p = faultproxy.Before(t, cluster.Member(0).Endpoint())
	through = cluster.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{p.Endpoint()} })
	key = testetcd.Prefix(t) + "k"
	_, err := through.Put(within(t, patience), key, "first")
	require.NoError(t, err)
	return p, through, cluster.Client(t), key
}

func read(t *testing.T, client *clientv3.Client, key string) string {
	got, err := client.Get(within(t, patience), key)
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	return string(got.Kvs[0].Value)
}

func TestPutWithHeldAnswerIsCommittedAlthoughItsCallerSawATimeout(t *testing.T) {
	t.Parallel()
	p, through, direct, key := proxied(t)
	p.Hold(toClient)
	_, err := through.Put(within(t, 300*time.Millisecond), key, "second")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "second", read(t, direct, key))
	p.Heal()
	require.Equal(t, "second", read(t, through, key), "the same connection goes on")
}

func TestLostPutCommitsWhenItIsDeliveredLate(t *testing.T) {
	t.Parallel()
	p, through, direct, key := proxied(t)
	p.HoldExisting(toServer)
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := through.Put(ctx, key, "second")
		failed <- err
	}()
	require.NoError(t, p.WaitHeld(within(t, patience), toServer, int64(len(key)+len("second"))))
	request := p.Held(toServer)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.Equal(t, "first", read(t, direct, key))

	p.Deliver(toServer, request)
	require.Eventually(t, func() bool { return read(t, direct, key) == "second" }, patience, 5*time.Millisecond)
}

func TestBlackHoledRequestNeverArrives(t *testing.T) {
	t.Parallel()
	p, through, direct, key := proxied(t)
	p.Drop()
	_, err := through.Put(within(t, 200*time.Millisecond), key, "second")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	p.Heal()
	require.Equal(t, "first", read(t, direct, key))
	_, err = through.Put(within(t, patience), key, "third")
	require.NoError(t, err, "the client connects anew")
	require.Equal(t, "third", read(t, direct, key))
}

func TestClientSurvivesARestartBehindTheProxy(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks)
	p := faultproxy.Before(t, cluster.Member(0).Endpoint())
	client := cluster.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{p.Endpoint()} })
	_, err := client.Put(within(t, patience), "k", "v")
	require.NoError(t, err)
	cluster.Member(0).Stop()
	require.NoError(t, p.WaitConnections(within(t, patience), 0))
	require.NoError(t, cluster.Member(0).Restart())
	require.Equal(t, "v", read(t, client, "k"))
}
