package tickets

import (
	"context"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// Release gives the turn back and hands the key on. It is idempotent: after a release, and after a
// loss, it touches nothing and returns nil. A ctx that has already ended does not stop it; what
// etcd has not confirmed in time is an ErrUnavailable and goes on in the background.
func (t *Turn) Release(ctx context.Context) error {
	q := t.queue
	q.mu.Lock()
	if t.ticket.state == holding {
		// The context ends first: the work must stop before the key can be somebody else's.
		t.hold.End(ErrReleased)
		held := time.Since(t.since) // giving back is not holding, and may take long
		q.leaveHeldLocked(t)
		defer func() { q.cfg.Events.TurnReleased(t.Key(), t.Fence(), held) }()
	}
	return q.awaitGone(ctx, t.ticket, "release")
}

// heldTooLong ends a turn at MaxHold, and lets the next one in line proceed.
func (q *Queue) heldTooLong(t *Turn) {
	q.mu.Lock()
	if t.ticket.state != holding {
		q.mu.Unlock()
		return
	}
	err := t.hold.Lose(fencing.MaxHold, nil)
	q.leaveHeldLocked(t)
	q.mu.Unlock()
	q.cfg.Events.TurnLost(t.Key(), t.Fence(), err)
}

func (q *Queue) leaveHeldLocked(turn *Turn) {
	turn.stopTimer()
	t := turn.ticket
	t.state = leaving
	q.lines[t.key].drop(t)
	q.cfg.Janitor.Go(func(ctx context.Context) bool { return q.leave(ctx, t) })
}

// awaitGone waits until the ticket has left etcd. It is called with q.mu held and releases it.
func (q *Queue) awaitGone(ctx context.Context, t *Ticket, op string) error {
	left := t.state != leaving
	q.mu.Unlock()
	if !left {
		wait, cancel := backend.ForGivingBack(ctx, q.cfg.RequestTimeout)
		defer cancel()
		select {
		case <-t.gone:
		case <-wait.Done():
			ctx = wait
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.state == leaving || t.unconfirmed {
		return fencing.Unconfirmed(ctx, op, t.key, t.last)
	}
	return nil
}

// leave makes one attempt to take the ticket out of etcd and to wake whoever is next: the end of
// every ticket, whether it was held, given up or a ghost. Repeating it is safe, since it compares
// the create revision.
func (q *Queue) leave(ctx context.Context, t *Ticket) (done bool) {
	q.mu.Lock()
	if q.ended || t.state != leaving {
		q.mu.Unlock()
		return true
	}
	q.mu.Unlock()

	request, cancel := backend.WithTimeout(ctx, q.cfg.RequestTimeout)
	defer cancel()
	behind := q.lookBehind(request, t)
	history, back := q.recordAfter(request, t)
	ops := []clientv3.Op{
		clientv3.OpDelete(q.keyOf(t)),
		clientv3.OpDelete(q.cfg.Schema.Nudge(t.key, q.lease, t.slot)),
	}
	ops = append(ops, back...)
	if behind.put != nil {
		ops = append(ops, *behind.put)
	}
	head := clientv3.OpGet(q.cfg.Schema.Tickets(t.key), clientv3.WithFirstCreate()...)
	own := q.keyOf(t)
	answer, err := q.cfg.Client.Txn(request).
		If(clientv3.Compare(clientv3.CreateRevision(own), "=", t.fence)).
		Then(append(ops, head)...).
		Else(head).Commit()
	if err != nil {
		q.leaveFailed(t, history, err)
		return false
	}
	q.cfg.Session.Saw(answer.Header.Revision)
	// In both branches own is gone now, and the last answer is who is head without it.
	last := len(answer.Responses) - 1
	nudged := answer.Succeeded && behind.put != nil && answer.Responses[last-1].GetResponseTxn().Succeeded
	q.mu.Lock()
	q.freeLocked(t)
	q.mu.Unlock()
	q.wake(t, answer.Responses[last].GetResponseRange().Kvs, behind, nudged)
	return true
}

func (q *Queue) leaveFailed(t *Ticket, history clientv3.LeaseID, err error) {
	q.cfg.Logger.Debug("leave failed", "key", t.key, "fence", t.fence, "err", err)
	q.mu.Lock()
	defer q.mu.Unlock()
	t.last = err
	switch backend.Classify(err) {
	case backend.LeaseGone:
		q.cfg.History.leaseGone(history) // the only lease that can fail it: the nudge's is guarded by its ticket
	case backend.NoSpace:
		t.noPuts = true // deletes work in a full etcd
	}
}

// recordAfter is what the leaving ticket does to the record of who was granted last.
func (q *Queue) recordAfter(ctx context.Context, t *Ticket) (clientv3.LeaseID, []clientv3.Op) {
	q.mu.Lock()
	held, named, noPuts, prev, eager := t.turn != nil, t.named, t.noPuts, t.prev, t.eager
	q.mu.Unlock()
	holder := q.cfg.Schema.Holder(t.key)
	put := func(r record) (clientv3.LeaseID, *clientv3.Op) {
		if noPuts || !r.known() {
			return 0, nil
		}
		history, err := q.cfg.History.leaseFor(ctx, t.key, q.spawn)
		if err != nil {
			return 0, nil // "unknown" is safe, and leaving must not depend on it
		}
		op := clientv3.OpPut(holder, r.encode(), clientv3.WithLease(history))
		return history, &op
	}
	if held {
		// A held key is not idle: the time of what was written when the turn was granted has run meanwhile.
		if time.Since(named) < q.cfg.History.fresh() {
			return 0, nil
		}
		history, op := put(q.me.with(t.fence))
		if op == nil {
			return 0, nil
		}
		return history, []clientv3.Op{*op}
	}
	// Never held: the record must not name it. It does exactly if this compare holds.
	mine := clientv3.Compare(clientv3.Value(holder), "=", q.me.with(t.fence).encode())
	if eager {
		mine = clientv3.Compare(clientv3.ModRevision(holder), "=", t.fence)
	}
	history, op := put(prev)
	if op == nil {
		forget := clientv3.OpDelete(holder)
		op = &forget
	}
	return history, []clientv3.Op{clientv3.OpTxn([]clientv3.Cmp{mine}, []clientv3.Op{*op}, nil)}
}

// next is the ticket behind the one that leaves, as a guess.
type next struct {
	fence int64
	put   *clientv3.Op // its nudge, guarded by its own create revision
}

// lookBehind guesses who is next, so that the nudge travels in the same transaction. A member's
// own, perhaps stale, view is good enough: a wrong guess only costs a second request.
func (q *Queue) lookBehind(ctx context.Context, t *Ticket) next {
	if t.noPuts || t.eager && t.turn != nil && time.Since(t.turn.since) < probablyAlone {
		return next{}
	}
	look, cancel := context.WithTimeout(ctx, guessLimit)
	defer cancel()
	answer, err := q.cfg.Client.Get(look, q.cfg.Schema.Tickets(t.key), clientv3.WithPrefix(),
		clientv3.WithMinCreateRev(t.fence+1), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend),
		clientv3.WithLimit(1), clientv3.WithSerializable())
	if err != nil || len(answer.Kvs) == 0 {
		return next{}
	}
	kv := answer.Kvs[0]
	key, lease, slot, ok := q.cfg.Schema.ParseTicket(string(kv.Key))
	// Ours is woken in memory, a strange one not at all. One that hangs on another lease than its
	// name says may outlive the lease of its inbox, and then the nudge would fail the whole leaving.
	if !ok || lease == q.lease || kv.Lease != lease {
		return next{}
	}
	put := clientv3.OpTxn(
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(string(kv.Key)), "=", kv.CreateRevision)},
		[]clientv3.Op{clientv3.OpPut(q.cfg.Schema.Nudge(key, lease, slot), "", clientv3.WithLease(clientv3.LeaseID(lease)))},
		nil)
	return next{fence: kv.CreateRevision, put: &put}
}

const (
	guessLimit = 250 * time.Millisecond
	// probablyAlone: nobody was in line when the turn was granted, and it took no longer than this.
	// Then the read would cost more than the second request that it saves now and then.
	probablyAlone = 5 * time.Millisecond
)

// wake makes whoever became head by this leaving look. It was not in front of a head that is older.
func (q *Queue) wake(t *Ticket, head []*mvccpb.KeyValue, behind next, nudged bool) {
	if len(head) == 0 || head[0].CreateRevision < t.fence || nudged && behind.fence == head[0].CreateRevision {
		return
	}
	kv := head[0]
	key, lease, slot, ok := q.cfg.Schema.ParseTicket(string(kv.Key))
	switch {
	case !ok || kv.Lease == 0:
		q.removeStrayTicket(kv)
	case lease == q.lease:
		q.trigger(key)
	default:
		etcdKey, fence := string(kv.Key), kv.CreateRevision
		q.cfg.Janitor.Go(func(ctx context.Context) bool {
			return q.nudge(ctx, fencing.Guard(etcdKey, fencing.Token(fence)), q.cfg.Schema.Nudge(key, lease, slot), lease)
		})
	}
}

// nudge tells another replica to look, until that is answered. It is put only while the ticket that
// it is for is there: else nobody would take it out of the inbox, and whoever left wakes the next.
func (q *Queue) nudge(ctx context.Context, there clientv3.Cmp, etcdKey string, lease int64) (done bool) {
	request, cancel := backend.WithTimeout(ctx, q.cfg.RequestTimeout)
	defer cancel()
	_, err := q.cfg.Client.Txn(request).If(there).
		Then(clientv3.OpPut(etcdKey, "", clientv3.WithLease(clientv3.LeaseID(lease)))).Commit()
	switch backend.Classify(err) {
	case backend.None, backend.LeaseGone: // gone too: its registration's end wakes everybody
		return true
	case backend.NoSpace, backend.Denied, backend.Refused: // left to the receiver's audit
		return true
	}
	return false
}
