package tickets

import (
	"context"
	"errors"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// haunt turns a ticket whose Reserve has an unknown outcome into a ghost: the settle job finds out
// whether it is in etcd, and makes sure that it cannot come later. mod is what the lost request
// compared with the registration; final: it cannot be applied any more. ended: the epoch is over,
// and the lease takes the ghost along.
func (q *Queue) haunt(t *Ticket, mod int64, final bool) (ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return true
	}
	q.lines[t.key].drop(t)
	t.state, t.mod, t.final = ghost, mod, final
	t.spent = true
	q.ghosts = append(q.ghosts, t)
	if !q.settling {
		q.settling = true
		q.cfg.Janitor.Go(q.settleGhosts)
	}
	return false
}

// verdict is what one attempt to settle a ghost came to.
type verdict uint8

const (
	undecided  verdict = iota // etcd could not be asked
	needsSpace                // etcd is full, and the ghost may still come
	settled                   // gone for good, or on its way out like any other ticket
)

// settleGhosts is the one settle job of this replica: two puts of the registration at a time would
// only make each other's compare fail. One bump settles all ghosts of an outage.
//
// A ghost that needs space stays, and is no reason to leave those behind it in etcd, where they
// may be in front of everybody.
func (q *Queue) settleGhosts(ctx context.Context) (done bool) {
	for kept := 0; ; {
		q.mu.Lock()
		if q.ended || len(q.ghosts) == kept {
			q.settling = !q.ended && kept > 0
			done = !q.settling
			q.mu.Unlock()
			return done
		}
		t := q.ghosts[kept]
		q.mu.Unlock()
		switch q.settle(ctx, t) {
		case undecided:
			return false // so are all others
		case needsSpace:
			kept++
		case settled:
			q.mu.Lock()
			q.ghosts = slices.Delete(q.ghosts, kept, kept+1) // nobody else takes one out
			q.mu.Unlock()
		}
	}
}

// settle makes one attempt for one ghost.
//
// The ghost's request compares the registration with t.mod. Once one answer says that its key is
// absent and that the registration has moved on, it can never be applied.
func (q *Queue) settle(ctx context.Context, t *Ticket) verdict {
	request, cancel := backend.WithTimeout(ctx, q.cfg.RequestTimeout)
	defer cancel()
	if t.final {
		return q.readGhost(request, t)
	}
	registration, _ := q.cfg.Session.Registration()
	own := q.keyOf(t)
	answer, err := q.cfg.Client.Txn(request).
		If(clientv3.Compare(clientv3.CreateRevision(own), "=", 0),
			clientv3.Compare(clientv3.ModRevision(registration), "=", t.mod)).
		Then(clientv3.OpPut(registration, q.cfg.Session.RegistrationValue(), clientv3.WithLease(q.cfg.Session.Lease()))).
		Else(clientv3.OpGet(own, clientv3.WithKeysOnly()), clientv3.OpGet(registration, clientv3.WithKeysOnly())).
		Commit()
	switch backend.Classify(err) {
	case backend.None:
	case backend.LeaseGone:
		q.cfg.Session.Lose(err)
		return settled
	case backend.NoSpace:
		return q.readGhost(request, t)
	default:
		// Repeating is safe: a late copy of this very bump settles the ghost as well.
		q.cfg.Logger.Debug("settle failed", "key", t.key, "err", err)
		return undecided
	}
	q.cfg.Session.Saw(answer.Header.Revision)
	if answer.Succeeded {
		q.cfg.Session.Bumped(answer.Header.Revision)
		q.forget(t)
		return settled
	}
	found := answer.Responses[0].GetResponseRange().Kvs
	seen := answer.Responses[1].GetResponseRange().Kvs
	switch {
	case len(found) > 0:
		q.exorcise(t, found[0].CreateRevision)
	case len(seen) == 0 || seen[0].Lease != q.lease:
		q.cfg.Session.Lose(errors.New("the registration is gone"))
	default:
		q.cfg.Session.Bumped(seen[0].ModRevision)
		q.forget(t)
	}
	return settled
}

// readGhost looks for the ghost without a put, because etcd is full. Absent is good enough only if
// its request cannot be applied any more; else the slot stays in use until there is space for a bump.
func (q *Queue) readGhost(ctx context.Context, t *Ticket) verdict {
	answer, err := q.cfg.Client.Get(ctx, q.keyOf(t), clientv3.WithKeysOnly())
	switch {
	case err != nil:
		return undecided
	case len(answer.Kvs) > 0:
		q.exorcise(t, answer.Kvs[0].CreateRevision)
	case t.final:
		q.forget(t)
	default:
		return needsSpace
	}
	return settled
}

// exorcise makes a ghost that was found leave like any other ticket.
func (q *Queue) exorcise(t *Ticket, fence int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	// Nobody was told about it, but it may have been granted by the transaction that made it: the
	// record speaks of it exactly if its ModRevision is the fence, as for an eager ticket.
	t.fence, t.eager, t.state = fence, true, leaving
	q.cfg.Janitor.Go(func(ctx context.Context) bool { return q.leave(ctx, t) })
}
