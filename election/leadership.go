package election

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/hold"
)

// Leadership is the right to act for a name, from a win until it is resigned or lost. Its methods may
// be called concurrently.
type Leadership struct {
	e    *Elector
	hold *hold.Hold
	own  candidate // never changed

	freed bool // guarded by e.mu: resigned, and its key known to be gone
}

// Name is what is led.
func (l *Leadership) Name() string { return l.own.name }

// Fence is larger than that of every earlier leadership of the name. Whatever the leader writes
// elsewhere must carry it, and be refused where a larger one has been seen.
func (l *Leadership) Fence() fencing.Token { return l.hold.Token() }

// Context ends with the leadership. Its cause is the *fencing.LeaseLostError, or ErrReleased after
// Resign. It descends from no caller's context: a deadline for the waiting does not end it.
func (l *Leadership) Context() context.Context { return l.hold.Context() }

// Bind gives a context with parent's values and deadline that ends with the leadership or with
// parent, whichever is first, and keeps that one's cause. cancel frees it; call it.
func (l *Leadership) Bind(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	return l.hold.Bind(parent)
}

// AssertHeld returns nil while this process may believe that it leads, else the cause of the end. It
// compares clocks and asks nobody, so it is right at once after the process was frozen.
func (l *Leadership) AssertHeld() error { return l.hold.AssertHeld() }

// Guard is a compare for the If of an etcd transaction, which is then applied only while this
// leadership's key is there.
func (l *Leadership) Guard() clientv3.Cmp { return fencing.Guard(l.own.key, l.Fence()) }

// won makes a Leadership of a candidate that leads. The slot is the candidate's.
//
// Between the look at the clock here and the caller's return there is no I/O.
func (e *Elector) won(own candidate) (*Leadership, error) {
	if e.cfg.Session.Check() != nil {
		e.letGo(own)
		return nil, errDead
	}
	fence := fencing.Token(own.rev)
	l := &Leadership{e: e, own: own, hold: hold.New(own.name, fence, e.cfg.Session.Check)}
	e.cfg.Logger.Info("leadership gained", "replica", e.cfg.ReplicaID, "key", own.name, "fence", fence)
	// Told before the leadership is known to End, so that Lost cannot be told first.
	e.cfg.Gained(own.name, fence)

	e.mu.Lock()
	if e.endErr != nil {
		_ = l.hold.Lose(e.endReason, e.endCause)
		err := e.endErr
		e.mu.Unlock()
		e.tellLost(l)
		return nil, err
	}
	e.leaders[own.name] = l
	e.auditLocked()
	e.mu.Unlock()
	return l, nil
}

// evicted ends a leadership whose key is gone, or with left must go, because it would outlive us. The
// next contender here begins after that.
func (e *Elector) evicted(l *Leadership, left bool) {
	e.mu.Lock()
	if e.leaders[l.Name()] != l {
		e.mu.Unlock()
		return // resigned or ended meanwhile
	}
	delete(e.leaders, l.Name())
	_ = l.hold.Lose(fencing.Evicted, errGone)
	e.mu.Unlock()
	e.tellLost(l)
	own := l.own
	if !left {
		own.rev = 0
	}
	e.letGo(own)
}
