package fencing

import (
	"context"
	"errors"
	"fmt"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// Unavailable turns err, which an etcd request made for the verb op on key returned, into what
// the caller of the verb is told. ctx is that caller's context: if it was cancelled, the result
// wraps its cause, else it is a *CoordinationUnavailableError.
func Unavailable(ctx context.Context, op, key string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s %q: %w", op, key, context.Cause(ctx))
	}
	u := &CoordinationUnavailableError{Op: op, Key: key, Reason: Backend, Err: err}
	switch backend.Classify(err) {
	case backend.NoSpace:
		u.Reason = NoSpace
	case backend.Denied:
		u.Reason = Denied
	case backend.Timeout, backend.Canceled:
		u.Reason, u.Err = Timeout, timeoutCause(ctx, err)
	}
	return u
}

// timeoutCause wraps context.DeadlineExceeded, whatever form the deadline took on its way
// through gRPC, and the caller's own cause if he gave one.
func timeoutCause(ctx context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		err = errors.Join(context.DeadlineExceeded, err)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return err
}
