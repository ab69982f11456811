package fencing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

const (
	// verbsPatience is what Close gives verbs under way to finish by themselves, verbsGrace what it
	// gives them to return after it has ended their contexts.
	verbsPatience = backend.DetachedLimit - verbsGrace
	verbsGrace    = 500 * time.Millisecond
)

// underWay are the verbs under way. Close ends them before anything else: the clean-up that a verb
// leaves behind when it fails is then known to the background, and Close can wait for that as well.
type underWay struct {
	life context.Context // ends when a verb must
	cut  context.CancelCauseFunc

	mu     sync.Mutex // guards the fields below
	verbs  int
	closed bool
	none   chan struct{} // made by close; closed when the last verb has left
}

func newUnderWay() *underWay {
	u := &underWay{none: make(chan struct{})}
	u.life, u.cut = context.WithCancelCause(context.Background())
	return u
}

// enter counts a verb, if the provider is not closed. leave must be called at its very end.
func (u *underWay) enter(op, key string) (leave func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, fmt.Errorf("%s %q: %w", op, key, ErrClosed)
	}
	u.verbs++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.verbs--; u.verbs == 0 && u.closed {
			close(u.none)
		}
	}, nil
}

// bound makes ctx end, with ErrClosed as its cause, when Close does not wait any longer.
func (u *underWay) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(u.life, func() { cancel(ErrClosed) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// close lets nobody in any more, and returns when all have left, or at a limit if one of them does
// not obey its context. first: it was not closed before.
func (u *underWay) close() (first bool) {
	u.mu.Lock()
	first = !u.closed
	u.closed = true
	if first && u.verbs == 0 {
		close(u.none)
	}
	u.mu.Unlock()
	if !first {
		return false
	}
	defer u.cut(ErrClosed)
	if closedWithin(u.none, verbsPatience) {
		return true
	}
	u.cut(ErrClosed)
	closedWithin(u.none, verbsGrace)
	return true
}

// closedWithin waits for c to be closed, but not longer than limit.
func closedWithin(c <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
