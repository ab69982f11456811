package backend

import (
	"context"
	"time"
)

// WithTimeout bounds a single request: by the caller's deadline if there is one, else by limit.
func WithTimeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// DetachedLimit bounds what a verb that gives something back does after its caller's context has ended.
const DetachedLimit = 2 * time.Second

// ForGivingBack is the context of a verb that gives something back (Release, Cancel, Resign).
// Such a verb is typically deferred, and its context has then ended already: that must not keep
// the key from the next in line. A context that still lives is obeyed.
func ForGivingBack(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return context.WithTimeout(context.WithoutCancel(ctx), DetachedLimit)
	}
	return WithTimeout(ctx, limit)
}
