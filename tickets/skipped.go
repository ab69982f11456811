package tickets

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// skippedKeys caps for how many keys a dead replica's tickets are looked up. The event is news for
// people; nothing waits for it.
const skippedKeys = 1000

// ReplicaDied tells which tickets of a dead replica stood ahead of one of ours. revision is the
// one in which its registration, and with it the whole lease, vanished.
func (q *Queue) ReplicaDied(replica string, lease, revision int64) {
	q.mu.Lock()
	waits := make(map[string]int64) // by key, fence of the last ticket of ours
	for key, l := range q.lines {
		if n := len(l.live); n > 0 && l.live[n-1].state == waiting && len(waits) < skippedKeys {
			waits[key] = l.live[n-1].fence
		}
	}
	q.mu.Unlock()
	if len(waits) == 0 {
		return
	}
	q.cfg.Janitor.Go(func(ctx context.Context) bool {
		for key, fence := range waits {
			if !q.tellSkipped(ctx, replica, key, fence, lease, revision) {
				break
			}
		}
		return true
	})
}

// tellSkipped reads the past: the tickets that the lease had for key just before it vanished.
func (q *Queue) tellSkipped(ctx context.Context, replica, key string, fence, lease, revision int64) bool {
	request, cancel := backend.WithTimeout(ctx, q.cfg.RequestTimeout)
	defer cancel()
	answer, err := q.cfg.Client.Get(request, q.cfg.Schema.TicketsOf(key, lease), clientv3.WithPrefix(),
		clientv3.WithRev(revision-1), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		q.cfg.Logger.Debug("tickets of a dead replica could not be listed", "key", key, "replica", replica, "err", err)
		return false
	}
	for _, kv := range answer.Kvs {
		if kv.CreateRevision < fence {
			q.cfg.Events.TicketSkipped(key, fencing.Token(kv.CreateRevision), replica)
		}
	}
	return true
}
