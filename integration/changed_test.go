package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func TestSessionRestoredInAnotherClusterSaysSo(t *testing.T) {
	t.Parallel()
	other := testetcd.New(t, testetcd.FastTicks)
	otherClient := other.Client(t)
	for range 100 { // its revisions are higher: only its name tells
		_, err := otherClient.Put(soon(t), "other", "")
		require.NoError(t, err)
	}
	b := newBotOn(t, testetcd.New(t, testetcd.FastTicks))
	proxy := faultproxy.Before(t, b.etcd.Endpoints()[0])
	a := b.replicaOn(clientThrough(t, b.etcd, proxy), "a", ttl(3*time.Second), renewEvery(300*time.Millisecond))
	restored := collect[etcdcoord.SessionRestored](t, a)
	turn := take(t, a, "chat")
	proxy.SetTarget(other.Endpoints()[0])
	proxy.Cut()
	lost(t, cause(t, turn.Context()), etcdcoord.Expired)
	require.True(t, got(t, restored).ClusterChanged)
	release(t, take(t, a, "chat"))
}

func TestSessionRestoredInAnEtcdThatWentBackSaysSo(t *testing.T) {
	t.Parallel()
	dir, snapshot := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "snapshot")
	etcd := testetcd.New(t, testetcd.FastTicks, func(cfg *testetcd.Config) { cfg.Dir = dir })
	member := etcd.Member(0)
	member.Stop()
	require.NoError(t, os.CopyFS(snapshot, os.DirFS(dir)))
	require.NoError(t, member.Restart())

	// An idle replica, which sees what others write by its renewals alone.
	b := newBotOn(t, etcd)
	a := b.replica("a", ttl(3*time.Second), renewEvery(300*time.Millisecond))
	restored := collect[etcdcoord.SessionRestored](t, a)
	for i := range 20 {
		_, err := b.plain.Put(soon(t), b.prefix+"other/"+fmt.Sprint(i), "")
		require.NoError(t, err)
	}
	renewals := a.Stats().Renewals
	require.Eventually(t, func() bool { return a.Stats().Renewals > renewals+1 }, patience, 5*time.Millisecond)
	member.Stop()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(snapshot)))
	require.NoError(t, member.Restart())
	require.True(t, got(t, restored).ClusterChanged, "fences of before are larger than those to come")
}

// The same etcd, down for a while, is no other cluster.
func TestSessionRestoredAfterARestartOfEtcdHasNotChanged(t *testing.T) {
	t.Parallel()
	etcd := testetcd.New(t, testetcd.FastTicks)
	b := newBotOn(t, etcd)
	a := b.replica("a", ttl(2*time.Second), requestTimeout(time.Second))
	gone, restored := collect[etcdcoord.SessionLost](t, a), collect[etcdcoord.SessionRestored](t, a)
	turn := take(t, a, "chat")
	etcd.Member(0).Stop()
	got(t, gone)
	require.NoError(t, etcd.Member(0).Restart())
	require.False(t, got(t, restored).ClusterChanged)
	require.Greater(t, take(t, a, "chat").Fence(), turn.Fence())
}
