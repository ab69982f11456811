package tickets

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// kickLocked sends a grant for the oldest live ticket of the line, if it may be head without
// knowing it and somebody waits for it.
func (q *Queue) kickLocked(l *line) {
	t := l.oldest()
	if t == nil || t.state != waiting || !t.dirty || !t.spent || t.busy || t.queued || q.ended {
		return
	}
	t.queued = true
	q.cfg.Janitor.Go(func(ctx context.Context) bool { return q.grant(ctx, t) })
}

// grant asks etcd for the turn: one attempt.
func (q *Queue) grant(ctx context.Context, t *Ticket) (done bool) {
	q.mu.Lock()
	t.queued = false
	if q.ended || t.state != waiting || !t.dirty || q.lines[t.key].oldest() != t {
		q.mu.Unlock()
		return true
	}
	// Cleared when it is sent, not when it is answered: a trigger that comes meanwhile speaks of a
	// change that this attempt may not have seen.
	t.busy, t.dirty = true, false
	t.named = time.Now()
	noPuts := t.noPuts
	q.mu.Unlock()

	request, cancel := backend.WithTimeout(ctx, q.cfg.RequestTimeout)
	defer cancel()
	answer, err := q.sendGrant(request, t, noPuts)
	var prev record
	var warm bool
	if err != nil {
		q.cfg.Logger.Debug("grant failed", "key", t.key, "fence", t.fence, "err", err)
	} else if answer.Succeeded {
		prev, warm = q.judge(t.key, q.readRecord(answer.Responses[0].GetResponseRange().Kvs), t.fence)
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	t.busy = false
	if q.ended {
		return true
	}
	if err != nil {
		return q.grantFailedLocked(t, err)
	}
	q.grantAnsweredLocked(t, answer, prev, warm)
	return true
}

// sendGrant puts the record under the guard that the ticket exists and is head. Repeating it is
// harmless: it always puts the same bytes.
func (q *Queue) sendGrant(ctx context.Context, t *Ticket, noPuts bool) (*clientv3.TxnResponse, error) {
	own, holder, all := q.keyOf(t), q.cfg.Schema.Holder(t.key), q.cfg.Schema.Tickets(t.key)
	// With etcd full the record is deleted instead: "unknown" is safe, a stale name is not.
	name := clientv3.OpDelete(holder)
	var history clientv3.LeaseID
	if !noPuts {
		var err error
		if history, err = q.cfg.History.leaseFor(ctx, t.key, q.spawn); err != nil {
			return nil, err
		}
		name = clientv3.OpPut(holder, q.me.with(t.fence).encode(), clientv3.WithLease(history))
	}
	answer, err := q.cfg.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(own), "=", t.fence),
			clientv3.Compare(clientv3.CreateRevision(all), ">", t.fence-1).WithPrefix()).
		Then(clientv3.OpGet(holder), name).
		Else(clientv3.OpGet(own, clientv3.WithKeysOnly())).
		Commit()
	if backend.Classify(err) == backend.LeaseGone {
		q.cfg.History.leaseGone(history) // the only lease in it; the next attempt takes another
	}
	return answer, err
}

// grantAnsweredLocked takes in the answer, and what it says of the holder before.
func (q *Queue) grantAnsweredLocked(t *Ticket, answer *clientv3.TxnResponse, prev record, warm bool) {
	q.cfg.Session.Saw(answer.Header.Revision)
	kvs := answer.Responses[0].GetResponseRange().Kvs
	switch {
	case t.state == leaving:
		// Given up meanwhile. Now it is known who has to be named again.
		if answer.Succeeded {
			t.prev = prev
		}
		q.cfg.Janitor.Go(func(ctx context.Context) bool { return q.leave(ctx, t) })
	case t.state != waiting:
		// The audit was faster.
	case answer.Succeeded:
		q.grantedLocked(t, prev, warm)
	case len(kvs) == 0 || kvs[0].CreateRevision != t.fence:
		q.lostLocked(t, errGone)
	default:
		q.kickLocked(q.lines[t.key]) // not head yet; a trigger may have come meanwhile
	}
}

var (
	errGone    = errors.New("its key is gone from etcd")
	errSpoiled = errors.New("its key was put by hand, without the session's lease")
)

func (q *Queue) grantFailedLocked(t *Ticket, err error) (done bool) {
	if t.state == leaving {
		q.cfg.Janitor.Go(func(ctx context.Context) bool { return q.leave(ctx, t) })
		return true
	}
	if t.state != waiting {
		return true
	}
	switch backend.Classify(err) {
	case backend.NoSpace:
		t.noPuts = true
	case backend.Denied, backend.Refused:
		// It would be refused again.
		q.giveUpLocked(t, fencing.Unavailable(context.Background(), "acquire turn", t.key, err))
		return true
	}
	// Still dirty, and the same job tries again: queued, so that no second one is made.
	t.dirty, t.queued = true, true
	return false
}
