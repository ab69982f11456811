package tickets

import (
	"context"
	"errors"
	"slices"

	"github.com/andresayac/botmesh-etcd/internal/session"
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
func (q *Queue) settle(ctx context.Context, t *Ticket) verdict {
	created, err := q.cfg.Session.Settle(ctx, q.keyOf(t), t.mod, t.final)
	switch {
	case errors.Is(err, session.ErrLost):
		return settled // its lease takes it along
	case errors.Is(err, session.ErrNeedsSpace):
		return needsSpace // the slot stays in use
	case err != nil:
		q.cfg.Logger.Debug("settle failed", "key", t.key, "err", err)
		return undecided
	case created != 0:
		q.exorcise(t, created)
	default:
		q.forget(t)
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
