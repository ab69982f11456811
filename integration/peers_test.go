package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

func TestPeersAreToldAboutFromTheSubscriptionOn(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	b.replica("before")
	a := b.replica("a")
	joined, left := collect[etcdcoord.ReplicaJoined](t, a), collect[etcdcoord.ReplicaLeft](t, a)
	// The mark is a courtesy that a busy etcd may miss once; the kill must never look like a stop.
	const tries = 3
	crashed := 0
	for range tries {
		peer := b.replica("peer")
		require.Equal(t, "peer", got(t, joined).Replica)
		require.NoError(t, peer.Stop(soon(t)))
		e := got(t, left)
		require.Equal(t, etcdcoord.ReplicaLeft{At: e.At, Replica: "peer", Crashed: e.Crashed}, e)
		if e.Crashed {
			crashed++
		}
	}
	require.Less(t, crashed, tries, "stops look like crashes")
	killed := b.child("replica", "killed", b.etcd.Endpoints()[0], 2*time.Second)
	require.Equal(t, "killed", got(t, joined).Replica)
	killed.kill()
	e := got(t, left)
	require.Equal(t, etcdcoord.ReplicaLeft{At: e.At, Replica: "killed", Crashed: true}, e)
	notYet(t, joined, "nobody else joined, and not oneself")
}

func TestPeersThatComeAndGoWhileCutOffAreToldAboutAfterHealing(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	leaves, stays := b.replica("leaves"), b.replica("stays")
	a, proxy := b.apart("a", ttl(2*time.Second), requestTimeout(time.Second))
	joined, left := collect[etcdcoord.ReplicaJoined](t, a), collect[etcdcoord.ReplicaLeft](t, a)
	gone, restored := collect[etcdcoord.SessionLost](t, a), collect[etcdcoord.SessionRestored](t, a)
	proxy.Drop()
	got(t, gone)
	require.NoError(t, leaves.Stop(soon(t)))
	b.replica("comes")
	proxy.Heal()
	got(t, restored)
	require.Equal(t, "leaves", got(t, left).Replica)
	require.Equal(t, "comes", got(t, joined).Replica)
	require.NoError(t, stays.Stop(soon(t)))
	require.Equal(t, "stays", got(t, left).Replica)
	notYet(t, joined, "who was there before is no news")
}

// lateWatcher holds back what its watches on one prefix have to say.
type lateWatcher struct {
	clientv3.Watcher
	prefix string
	pass   chan struct{}
}

func (w *lateWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	in := w.Watcher.Watch(ctx, key, opts...)
	if key != w.prefix {
		return in
	}
	out := make(chan clientv3.WatchResponse)
	go func() {
		defer close(out)
		for answer := range in {
			select {
			case <-w.pass:
			case <-ctx.Done():
				return
			}
			select {
			case out <- answer:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func TestSkippedTicketIsToldAlsoWhenTheTurnCameBeforeTheNews(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	dead := b.child("replica", "dead", b.etcd.Endpoints()[0], 2*time.Second)
	fence := dead.ask("take chat", "took")
	client := b.etcd.Client(t)
	watcher := &lateWatcher{Watcher: client.Watcher, prefix: b.prefix + "v1/replicas/", pass: make(chan struct{})}
	client.Watcher = watcher
	a := b.replicaOn(client, "a")
	skipped := collect[etcdcoord.TicketSkipped](t, a)
	waits := acquiring(soon(t), a, reserve(t, a, "chat"))
	dead.kill()
	turn := acquired(t, waits) // by the audit
	previous(t, turn, "dead")
	close(watcher.pass)
	e := got(t, skipped)
	require.Equal(t, etcdcoord.TicketSkipped{At: e.At, Key: "chat", Fence: fence, Replica: "dead"}, e)
	release(t, turn)
}
