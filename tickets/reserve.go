package tickets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/keys"
)

// ReserveOption changes one Reserve.
type ReserveOption func(*reservation)

type reservation struct{ note string }

// WithNote attaches a text for operators to the ticket: it is stored in etcd with it, and means
// nothing to the queue. Keep it short and free of secrets.
func WithNote(note string) ReserveOption { return func(r *reservation) { r.note = note } }

// Reserve takes a place in key's queue. The place is fixed when Reserve returns: any Reserve of
// the key that is called later, on whatever replica, gets a later one.
//
// Errors: ErrInvalidKey; *CoordinationUnavailableError, after which a place that may have been
// taken nevertheless is given up in the background, for certain; the cause of ctx if it was
// cancelled, likewise; ErrEpochEnded if the session is over.
func (q *Queue) Reserve(ctx context.Context, key string, opts ...ReserveOption) (*Ticket, error) {
	if err := keys.Check("key", key); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fencing.Unavailable(ctx, "reserve", key, ctx.Err())
	}
	ctx, cancel := backend.WithTimeout(ctx, q.cfg.RequestTimeout)
	defer cancel()
	// Before a slot is taken: a failure here leaves nothing to clean up.
	history, err := q.cfg.History.leaseFor(ctx, key, q.spawn)
	if err != nil {
		return nil, noLease(ctx, key, err)
	}
	var r reservation
	for _, opt := range opts {
		opt(&r)
	}
	t, err := q.openSlot(key)
	if err != nil {
		return nil, err
	}
	return q.reserve(ctx, t, q.ticketValue(r), history)
}

// reserve sends the transaction until its outcome is known, or known to be unknown.
func (q *Queue) reserve(ctx context.Context, t *Ticket, value string, history clientv3.LeaseID) (*Ticket, error) {
	for leases := 0; ; {
		_, mod := q.cfg.Session.Registration()
		answer, err := q.sendReserve(ctx, t, mod, value, history)
		switch kind := backend.Classify(err); kind {
		case backend.None:
			again, err := q.reserved(t, mod, answer)
			if err != nil {
				return nil, err
			}
			if again {
				continue // nothing was written; the registration was bumped by a Settle
			}
			return t, nil
		case backend.LeaseGone:
			// Nothing was written. The history lease may have been revoked by hand; if a new one
			// does not help, it is the session's that is gone.
			q.cfg.History.leaseGone(history)
			if leases++; leases > 1 {
				q.forget(t)
				q.cfg.Session.Lose(err)
				return nil, ErrEpochEnded
			}
			if history, err = q.cfg.History.leaseFor(ctx, t.key, q.spawn); err != nil {
				q.forget(t)
				return nil, noLease(ctx, t.key, err)
			}
		case backend.Denied, backend.Refused, backend.Compacted:
			q.forget(t)
			return nil, fencing.Unavailable(ctx, "reserve", t.key, err)
		default:
			// Unknown: applied, or not, or not yet. No space means that it is decided, but not how.
			if q.haunt(t, mod, kind == backend.NoSpace) {
				return nil, ErrEpochEnded
			}
			return nil, fencing.Unavailable(ctx, "reserve", t.key, err)
		}
	}
}

// noLease is what a caller is told for whom there is no history lease.
func noLease(ctx context.Context, key string, err error) error {
	if errors.Is(err, ErrEpochEnded) {
		return ErrEpochEnded
	}
	return fencing.Unavailable(ctx, "reserve", key, err)
}

// sendReserve makes one round trip. It guards against its own ghost: a request given up on is
// applied only while the registration has not been bumped since.
func (q *Queue) sendReserve(ctx context.Context, t *Ticket, mod int64, value string, history clientv3.LeaseID) (*clientv3.TxnResponse, error) {
	own, holder, prefix := q.keyOf(t), q.cfg.Schema.Holder(t.key), q.cfg.Schema.Tickets(t.key)
	registration, _ := q.cfg.Session.Registration()
	put := clientv3.OpPut(own, value, clientv3.WithLease(q.cfg.Session.Lease()))
	return q.cfg.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(own), "=", 0),
			clientv3.Compare(clientv3.ModRevision(registration), "=", mod)).
		Then(clientv3.OpTxn(
			// True when the prefix is empty: nobody is in line, and the ticket is granted at once.
			[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(prefix), "=", 0).WithPrefix()},
			[]clientv3.Op{put, clientv3.OpGet(holder), clientv3.OpPut(holder, q.me.encode(), clientv3.WithLease(history))},
			[]clientv3.Op{put})).
		Else(clientv3.OpGet(registration), clientv3.OpGet(own, clientv3.WithKeysOnly())).
		Commit()
}

// reserved takes in the answer. again: nothing was written, send it once more.
func (q *Queue) reserved(t *Ticket, mod int64, answer *clientv3.TxnResponse) (again bool, err error) {
	q.cfg.Session.Saw(answer.Header.Revision)
	if answer.Succeeded {
		return false, q.queued(t, answer)
	}
	registration := answer.Responses[0].GetResponseRange().Kvs
	own := answer.Responses[1].GetResponseRange().Kvs
	switch {
	case len(own) > 0:
		q.cfg.Logger.Error("a free slot's key was in etcd; it is settled like a lost answer", "key", t.key, "etcd_key", string(own[0].Key))
		q.haunt(t, mod, false)
		return false, &fencing.CoordinationUnavailableError{
			Op: "reserve", Key: t.key, Reason: fencing.Backend,
			Err: fmt.Errorf("the key of a free slot, %q, is in etcd; it is being removed, try again", own[0].Key),
		}
	case q.cfg.Session.SawRegistration(registration) != nil:
		q.forget(t)
		return false, ErrEpochEnded
	case registration[0].ModRevision <= mod:
		// Not a bump, so the compare cannot have failed. Sending again could go on for ever.
		q.forget(t)
		return false, &fencing.CoordinationUnavailableError{
			Op: "reserve", Key: t.key, Reason: fencing.Backend,
			Err: fmt.Errorf("etcd went back: registration at revision %d, seen at %d", registration[0].ModRevision, mod),
		}
	}
	return true, nil
}

// queued enters the ticket into the line, as waiting or, if it was granted at once, as granted.
func (q *Queue) queued(t *Ticket, answer *clientv3.TxnResponse) error {
	nested := answer.Responses[0].GetResponseTxn()
	found := unknown
	if nested.Succeeded {
		found = q.readRecord(nested.Responses[1].GetResponseRange().Kvs)
	}
	fence := answer.Header.Revision
	prev, warm := q.judge(t.key, found, fence)

	q.mu.Lock()
	defer q.mu.Unlock()
	t.fence, t.eager = fence, nested.Succeeded
	if q.ended {
		return ErrEpochEnded // the ticket hangs on a lease that is being revoked
	}
	l := q.lines[t.key]
	t.state = waiting
	l.queue(t)
	if t.eager {
		q.grantedLocked(t, prev, warm)
	} else if l.oldest() != t {
		// The mark of a trigger that came meanwhile: an older ticket of ours is in front, and its
		// leaving will nudge this one.
		t.dirty = false
	}
	return nil
}

// openSlot makes a ticket that is about to be reserved.
func (q *Queue) openSlot(key string) (*Ticket, error) {
	if q.cfg.Session.Check() != nil {
		return nil, ErrEpochEnded
	}
	t := &Ticket{queue: q, key: key, over: make(chan struct{}), gone: make(chan struct{}), named: time.Now()}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return nil, ErrEpochEnded
	}
	l := q.lines[key]
	if l == nil {
		l = &line{}
		q.lines[key] = l
	}
	l.open(t)
	return t, nil
}

// forget frees the slot of a ticket that certainly is not in etcd and never will be.
func (q *Queue) forget(t *Ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.freeLocked(t)
}

func (q *Queue) freeLocked(t *Ticket) {
	if q.ended || t.state == gone {
		return
	}
	l := q.lines[t.key]
	l.free(t)
	closeIfOpen(t.over)
	closeIfOpen(t.gone)
	if l.empty() {
		delete(q.lines, t.key)
	}
}

func (q *Queue) keyOf(t *Ticket) string { return q.cfg.Schema.Ticket(t.key, q.lease, t.slot) }

func (q *Queue) ticketValue(r reservation) string {
	b, err := json.Marshal(ticketValue{
		Replica: q.me.Replica, Incarnation: q.me.Incarnation, Note: r.note,
		ReservedAt: time.Now().UTC().Format(time.RFC3339Nano),
	})
	if err != nil { // strings: cannot happen
		panic(err)
	}
	return string(b)
}
