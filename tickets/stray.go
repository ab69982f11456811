package tickets

import (
	"context"
	"sync"

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

// removeStrayNudge is removeStray for what was found in our inbox, if it is no nudge.
func (q *Queue) removeStrayNudge(kv *mvccpb.KeyValue) {
	if _, _, ok := q.cfg.Schema.ParseNudge(string(kv.Key), q.lease); !ok || kv.Lease == 0 {
		q.removeStray(kv)
	}
}

// warnStrange logs once per key: a foreign value may be read again with every turn.
func (q *Queue) warnStrange(key, what string) {
	if q.strange.first(key) {
		q.cfg.Logger.Warn(what, "replica", q.cfg.ReplicaID, "etcd_key", key)
	}
}

// reported are the keys that were logged. The memory is small: whoever fills etcd with strange keys
// may fill the log, but not this process.
type reported struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

const reportedKeys = 1000

func (r *reported) first(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.keys[key]; again {
		return false
	}
	if r.keys == nil || len(r.keys) >= reportedKeys {
		r.keys = make(map[string]struct{})
	}
	r.keys[key] = struct{}{}
	return true
}
