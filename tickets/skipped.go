package tickets

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
)

const (
	// skippedKeys caps for how many keys a dead replica's tickets are looked up. The event is news for
	// people; nothing waits for it.
	skippedKeys = 1000
	// skippedBatch is how many keys one read asks about; etcd allows 128 operations.
	skippedBatch = 100
)

// behind is a key, and the fence of the last ticket that this replica has in its line.
type behind struct {
	key   string
	fence int64
}

// ReplicaDied tells which tickets of a dead replica stood ahead of one of ours. revision is the
// one in which its registration, and with it the whole lease, vanished.
//
// It asks about every key that this replica has a live ticket for, not only about those where one
// waits: the turn may have come before the news of the death.
func (q *Queue) ReplicaDied(replica string, lease, revision int64) {
	q.mu.Lock()
	var places []behind
	for key, l := range q.lines {
		if n := len(l.live); n > 0 && len(places) < skippedKeys {
			places = append(places, behind{key, l.live[n-1].fence})
		}
	}
	q.mu.Unlock()
	if len(places) == 0 {
		return
	}
	q.cfg.Janitor.Go(func(ctx context.Context) bool {
		for batch := range slices.Chunk(places, skippedBatch) {
			if !q.tellSkipped(ctx, replica, batch, lease, revision) {
				break
			}
		}
		return true
	})
}

// tellSkipped reads the past: the tickets that the lease had just before it vanished.
func (q *Queue) tellSkipped(ctx context.Context, replica string, places []behind, lease, revision int64) bool {
	request, cancel := backend.WithTimeout(ctx, q.cfg.RequestTimeout)
	defer cancel()
	reads := make([]clientv3.Op, len(places))
	for i, p := range places {
		reads[i] = clientv3.OpGet(q.cfg.Schema.TicketsOf(p.key, lease), clientv3.WithPrefix(),
			clientv3.WithRev(revision-1), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	}
	answer, err := q.cfg.Client.Txn(request).Then(reads...).Commit()
	if err != nil {
		q.cfg.Logger.Debug("tickets of a dead replica could not be listed", "replica", replica, "err", err)
		return false
	}
	for i, p := range places {
		for _, kv := range answer.Responses[i].GetResponseRange().Kvs {
			if kv.CreateRevision < p.fence {
				q.cfg.Events.TicketSkipped(p.key, fencing.Token(kv.CreateRevision), replica)
			}
		}
	}
	return true
}
