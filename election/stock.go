package election

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/watch"
)

// stock makes concurrency.Election, for the campaign's key, on a view of the client. The view's
// context is the campaign's: the stock Campaign cleans up under that one when it is cancelled, which
// with the user's client would take as long as etcd likes. Release the session with Orphan: Close
// would revoke our lease.
func (c *campaign) stock() (*concurrency.Session, *concurrency.Election, error) {
	user := c.e.cfg.Client
	view := clientv3.NewCtxClient(c.ctx)
	view.KV = readingKV{KV: user.KV, limit: c.e.cfg.RequestTimeout}
	view.Watcher = c.watcher
	view.Lease = keptLease{user.Lease}
	session, err := concurrency.NewSession(view, concurrency.WithLease(c.e.cfg.Session.Lease()))
	if err != nil {
		return nil, nil, err
	}
	return session, concurrency.NewElection(session, c.e.cfg.Schema.Election(c.own.name)), nil
}

// keptLease tells the stock session that its lease is being renewed, without doing so:
// internal/session does, and two who renew would be two opinions about whether the lease lives.
type keptLease struct{ clientv3.Lease }

// KeepAlive never has anything to tell; its channel is closed when ctx ends.
func (keptLease) KeepAlive(ctx context.Context, _ clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	silent := make(chan *clientv3.LeaseKeepAliveResponse)
	context.AfterFunc(ctx, func() { close(silent) })
	return silent, nil
}

// readingKV bounds every request, and takes the writes out of transactions. Campaign's "put the key
// unless it is there" becomes "the key must be there": its put compares no registration, so one
// whose answer is lost could never be settled. Its "delete the key" after a cancel becomes nothing.
type readingKV struct {
	clientv3.KV
	limit time.Duration
}

// Get is bounded.
func (kv readingKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := backend.WithTimeout(ctx, kv.limit)
	defer cancel()
	return kv.KV.Get(ctx, key, opts...)
}

// Txn is bounded, and writes nothing.
func (kv readingKV) Txn(ctx context.Context) clientv3.Txn {
	ctx, cancel := backend.WithTimeout(ctx, kv.limit)
	return &readingTxn{inner: kv.KV.Txn(ctx), done: cancel}
}

type readingTxn struct {
	inner clientv3.Txn
	done  context.CancelFunc
}

func (t *readingTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.inner = t.inner.If(cs...)
	return t
}

// Then is where Campaign, Proclaim and Resign write.
func (t *readingTxn) Then(...clientv3.Op) clientv3.Txn { return t }

func (t *readingTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.inner = t.inner.Else(ops...)
	return t
}

// Commit reports as an error what would have been a write.
func (t *readingTxn) Commit() (*clientv3.TxnResponse, error) {
	defer t.done()
	answer, err := t.inner.Commit()
	if err == nil && answer.Succeeded {
		return nil, errGone
	}
	return answer, err
}

// wakeableWatcher is a Watcher whose watches can be broken off from outside. For Campaign that is
// the loss of a watch: it returns with an error, and leaves the key alone.
type wakeableWatcher struct {
	clientv3.Watcher
	limit time.Duration // for the opening of a watch

	mu   sync.Mutex         // guards stop
	stop context.CancelFunc // of the last watch
}

// Watch opens a watch on a stream of its own, which ends when its member loses the leader.
func (w *wakeableWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	ctx, stop := context.WithCancel(ctx) // ends with the parent, which Campaign cancels after every watch
	w.mu.Lock()
	w.stop = stop
	w.mu.Unlock()
	// Watch blocks until the server has answered, and only its context can bound that.
	tooSlow := time.AfterFunc(w.limit, stop)
	defer tooSlow.Stop()
	return w.Watcher.Watch(watch.FreshStream(clientv3.WithRequireLeader(ctx)), key, opts...)
}

// wake breaks the present watch off.
func (w *wakeableWatcher) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
	}
}
