package tickets

import (
	"context"
	"fmt"
	"sync"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// removeStray deletes a key in a tickets tree or in the inbox that nobody of ours can have
// written: it has no lease, or does not parse. Left alone it would be head for ever. The delete
// compares its revision, so a ticket that takes the name meanwhile is safe.
func (q *Queue) removeStray(kv *mvccpb.KeyValue) {
	key, mod := string(kv.Key), kv.ModRevision
	q.warnStrange(key, "strange key in our tree, removing it")
	q.cfg.Janitor.Go(func(ctx context.Context) bool {
		request, cancel := backend.WithTimeout(ctx, q.cfg.RequestTimeout)
		defer cancel()
		_, err := q.cfg.Client.Txn(request).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", mod)).
			Then(clientv3.OpDelete(key)).Commit()
		switch backend.Classify(err) {
		case backend.None:
			q.TriggerAll() // whoever stood behind it may be head
			return true
		case backend.Denied, backend.Refused:
			return true // the audit will find it again
		}
		return false
	})
}

// ownersTime is how long a ticket without a lease is left to its owner, whose audit finds it too.
const ownersTime = 3 * auditEvery

// removeStrayTicket is removeStray for the head of a line, if it can be nobody's ticket. One that
// has lost its lease to somebody's put may be held: its owner has to tell the holder before it goes.
func (q *Queue) removeStrayTicket(kv *mvccpb.KeyValue) {
	key, lease, slot, ok := q.cfg.Schema.ParseTicket(string(kv.Key))
	switch {
	case ok && kv.Lease != 0:
		return // it counts, whoever wrote it
	case ok && lease == q.lease && q.owns(key, slot, kv.CreateRevision):
		return // audited tells its holder, and removes it then
	case ok && lease != q.lease && q.strange.since(fmt.Sprintf("%s@%d", kv.Key, kv.ModRevision)) < ownersTime:
		return // the next audit asks again
	}
	q.removeStray(kv)
}

// owns says whether that is a live ticket of this queue.
func (q *Queue) owns(key string, slot int, fence int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[key]
	if l == nil || slot >= len(l.slots) || l.slots[slot] == nil {
		return false
	}
	t := l.slots[slot]
	return t.state.live() && t.fence == fence
}

// removeStrayNudge is removeStray for what was found in our inbox, if it is no nudge.
func (q *Queue) removeStrayNudge(kv *mvccpb.KeyValue) {
	if _, _, ok := q.cfg.Schema.ParseNudge(string(kv.Key), q.lease); !ok || kv.Lease == 0 {
		q.removeStray(kv)
	}
}

// warnStrange logs once per key: a foreign value may be read again with every turn.
func (q *Queue) warnStrange(key, what string) {
	if q.strange.since(key) == 0 {
		q.cfg.Logger.Warn(what, "replica", q.cfg.ReplicaID, "etcd_key", key)
	}
}

// reported is when strange keys were seen first. The memory is small: whoever fills etcd with
// strange keys may fill the log, but not this process.
type reported struct {
	mu   sync.Mutex
	keys map[string]time.Time
}

const reportedKeys = 1000

// since is how long ago the key was seen first; 0 for the first time.
func (r *reported) since(key string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first, again := r.keys[key]; again {
		return max(1, time.Since(first))
	}
	if r.keys == nil || len(r.keys) >= reportedKeys {
		r.keys = make(map[string]time.Time)
	}
	r.keys[key] = time.Now()
	return 0
}
