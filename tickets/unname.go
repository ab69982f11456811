package tickets

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// unnameBatch keeps a transaction, with four operations for each ticket, under etcd's limit of 128.
const unnameBatch = 25

// Unname gives up, on Stop, what was granted and never begun: else the records would go on naming
// this replica as the holder of turns that nobody had. It is called after End and before the lease
// is revoked, and ends with ctx: others are waiting for the revoke. What it does not get done looks
// like a crash, after which the replica counts as the previous holder.
func (q *Queue) Unname(ctx context.Context) error {
	q.mu.Lock()
	unused := q.unused
	q.mu.Unlock()
	for batch := range slices.Chunk(unused, unnameBatch) {
		// Of different keys, for only one ticket of a key is granted: nested compares see what was
		// there before the whole transaction.
		var ops []clientv3.Op
		for _, t := range batch {
			_, record := q.recordAfter(ctx, t)
			ops = append(ops, clientv3.OpTxn(
				[]clientv3.Cmp{fencing.Guard(q.keyOf(t), fencing.Token(t.fence))},
				append([]clientv3.Op{clientv3.OpDelete(q.keyOf(t))}, record...), nil))
		}
		if _, err := q.cfg.Client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return err
		}
	}
	return nil
}
