package election

import (
	"context"
	"errors"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// Resign gives the leadership back: its context ends first, then its key is deleted, and the next
// candidate leads. It may be repeated. After a loss it does nothing and returns nil.
//
// If ctx has already ended it takes at most two seconds of its own. When etcd does not confirm the
// delete in time, the error is a *fencing.CoordinationUnavailableError, and deleting goes on in the
// background until it is confirmed or the session ends.
func (l *Leadership) Resign(ctx context.Context) error {
	e := l.e
	first, there := e.release(l)
	if !there {
		return nil
	}
	if first {
		e.cfg.Logger.Info("leadership resigned", "replica", e.cfg.ReplicaID, "key", l.Name(), "fence", l.Fence())
	}
	request, cancel := backend.ForGivingBack(ctx, e.cfg.RequestTimeout)
	defer cancel()
	own := l.own // withdraw writes to it, and another Resign may run beside this one
	err := e.withdraw(request, &own)
	if err == nil {
		e.resigned(l)
		return nil
	}
	if e.ended() != nil {
		return nil // the lease takes the key
	}
	if first { // a later one finds it done, or under way
		e.untilGone(l.own, func() { e.resigned(l) })
	}
	return fencing.Unconfirmed(request, "resign", l.Name(), err)
}

// release ends the hold and takes it out of the leaders, in one step: evicted and End find a
// leadership that is theirs to end, and to tell of, or none.
//
// first: this call did it. there: it was resigned, now or before, and its key is not known to be gone.
func (e *Elector) release(l *Leadership) (first, there bool) {
	_ = l.hold.AssertHeld() // a session that is over by the clock, but does not know yet: lost, not released
	e.mu.Lock()
	defer e.mu.Unlock()
	led := e.leaders[l.Name()] == l
	if led {
		l.hold.End(ErrReleased)
	}
	if !errors.Is(context.Cause(l.hold.Context()), ErrReleased) {
		return false, false // lost; by the clock alone, it stays among the leaders, for Lost to be told
	}
	if led {
		delete(e.leaders, l.Name())
		e.slots[l.Name()].leaving = true
	}
	return led, !l.freed
}

// resigned frees the slot, once.
func (e *Elector) resigned(l *Leadership) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !l.freed {
		l.freed = true
		e.freeLocked(l.Name())
	}
}

// letGo is for who has the slot and does not want it any more: it is free when nothing of the
// candidate is left.
func (e *Elector) letGo(own candidate) {
	if own.clean() {
		e.free(own.name)
		return
	}
	e.mu.Lock()
	e.slots[own.name].leaving = true
	e.mu.Unlock()
	e.untilGone(own, func() { e.free(own.name) })
}

// untilGone makes sure that the candidate's key is gone and stays so, and then calls done. The end
// of the elector makes it pointless: the lease takes the key.
func (e *Elector) untilGone(own candidate, done func()) {
	e.cfg.Janitor.Go(func(ctx context.Context) bool {
		if e.ended() != nil {
			return true
		}
		if own.ghost != 0 {
			if err := e.settle(ctx, &own); err != nil {
				return errors.Is(err, errDead)
			}
		}
		if own.rev != 0 {
			if err := e.withdraw(ctx, &own); err != nil {
				return false
			}
		}
		done()
		return true
	})
}
