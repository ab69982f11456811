package tickets

import (
	"context"
	"slices"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// auditEvery is how long a lost trigger, or a ticket deleted by hand, stays unnoticed.
const auditEvery = time.Second

// audit looks after everything that no trigger told.
func (q *Queue) audit() {
	ticker := time.NewTicker(auditEvery)
	defer ticker.Stop()
	for {
		select {
		case <-q.life.Done():
			return
		case <-ticker.C:
			q.auditAll()
		}
	}
}

// auditBatch is how many keys one read asks about: two operations each, at most 128 in all.
const auditBatch = 60

// place is what an audit asks about: a ticket as it was when the request was made.
type place struct {
	ticket *Ticket
	fence  int64
}

// auditAll asks, for the oldest live ticket of each key, whether it is in etcd and who is head.
func (q *Queue) auditAll() {
	q.mu.Lock()
	var places []place
	for _, l := range q.lines {
		if t := l.oldest(); t != nil {
			places = append(places, place{t, t.fence})
		}
	}
	q.mu.Unlock()
	for batch := range slices.Chunk(places, auditBatch) {
		if q.life.Err() != nil {
			return
		}
		q.auditSome(batch)
	}
}

func (q *Queue) auditSome(places []place) {
	registration, _ := q.cfg.Session.Registration()
	// Not keys-only where the lease counts: etcd 3.7 leaves it out of such answers.
	ops := []clientv3.Op{clientv3.OpGet(registration)}
	for _, p := range places {
		ops = append(ops,
			clientv3.OpGet(q.keyOf(p.ticket)),
			clientv3.OpGet(q.cfg.Schema.Tickets(p.ticket.key), clientv3.WithFirstCreate()...))
	}
	request, cancel := context.WithTimeout(q.life, q.cfg.RequestTimeout)
	defer cancel()
	answer, err := q.cfg.Client.Txn(request).Then(ops...).Commit()
	if err != nil {
		q.cfg.Logger.Debug("audit failed", "replica", q.cfg.ReplicaID, "err", err)
		return
	}
	q.cfg.Session.Saw(answer.Header.Revision)
	if q.cfg.Session.SawRegistration(answer.Responses[0].GetResponseRange().Kvs) != nil {
		return // not this or that ticket: everything that hung on the lease is gone
	}
	for i, p := range places {
		own := answer.Responses[1+2*i].GetResponseRange().Kvs
		head := answer.Responses[2+2*i].GetResponseRange().Kvs
		q.audited(p, answer.Header.Revision, own, head)
	}
}

// audited takes in what etcd said about one place. It may be old: the ticket may have moved on.
func (q *Queue) audited(p place, revision int64, own, head []*mvccpb.KeyValue) {
	if revision < p.fence {
		return // a member that has not even seen the ticket made
	}
	if len(head) > 0 {
		q.removeStrayTicket(head[0])
	}
	t := p.ticket
	q.mu.Lock()
	if q.ended || !t.state.live() || t.fence != p.fence {
		q.mu.Unlock()
		return
	}
	gone := len(own) == 0 || own[0].CreateRevision != t.fence
	if gone || own[0].Lease != q.lease {
		why, turn := errGone, t.turn
		if !gone {
			why = errSpoiled // it would outlive this replica, and block the key for ever
		}
		if turn != nil {
			turn.hold.Lose(fencing.Evicted, why)
			turn.stopTimer()
		}
		q.lostLocked(t, why)
		q.mu.Unlock()
		if !gone {
			q.removeStray(own[0]) // only now: its holder has been told
		}
		if turn != nil {
			q.cfg.Events.TurnLost(turn.Key(), turn.Fence(), context.Cause(turn.Context()))
		}
		return
	}
	if t.state == waiting && len(head) > 0 && head[0].CreateRevision == t.fence {
		t.dirty = true
		q.kickLocked(q.lines[t.key])
	}
	q.mu.Unlock()
}
