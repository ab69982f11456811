// Package hold is the holder's side of whatever was granted: a context that ends with a cause, and
// a check that asks the clock. Turns and leaderships are both made of it. There is no I/O in it.
package hold

import (
	"context"
	"errors"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// ErrReleased is the end of a hold that was given back by its owner.
var ErrReleased = errors.New("released")

// Hold is one grant. It is live from New until the first End.
type Hold struct {
	key   string
	token fencing.Token
	alive func() error // nil while the session behind the hold may be believed in
	ctx   context.Context
	end   context.CancelCauseFunc
}

// New makes a live hold. alive must be cheap and must not block.
func New(key string, token fencing.Token, alive func() error) *Hold {
	// The hold's context descends from no caller's: a deadline for waiting must not end the work.
	ctx, end := context.WithCancelCause(context.Background())
	return &Hold{key: key, token: token, alive: alive, ctx: ctx, end: end}
}

// Key is what is held.
func (h *Hold) Key() string { return h.key }

// Token is the fence under which it is held.
func (h *Hold) Token() fencing.Token { return h.token }

// Context lives as long as the hold.
func (h *Hold) Context() context.Context { return h.ctx }

// End ends the hold. The first cause stays.
func (h *Hold) End(cause error) { h.end(cause) }

// Lose ends the hold with a LeaseLostError and returns the error that the hold ended with.
func (h *Hold) Lose(reason fencing.LostReason, err error) error {
	h.end(&fencing.LeaseLostError{Key: h.key, Token: h.token, Reason: reason, Err: err})
	return context.Cause(h.ctx)
}

// AssertHeld returns nil while the holder may believe that it holds, else why not.
//
// The context alone would not do: after a freeze the process runs on before the timer that ends
// the context has fired.
func (h *Hold) AssertHeld() error {
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx)
	}
	if err := h.alive(); err != nil {
		return h.Lose(fencing.Expired, err)
	}
	return nil
}

// Bind gives a context with parent's values and deadline that ends with the hold or with parent,
// whichever is first, and keeps that one's cause. cancel frees it.
func (h *Hold) Bind(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	if h.AssertHeld() != nil { // AfterFunc would get there too, but only a moment later
		end(context.Cause(h.ctx))
	}
	stop := context.AfterFunc(h.ctx, func() { end(context.Cause(h.ctx)) })
	return ctx, func() {
		stop()
		end(context.Canceled)
	}
}
