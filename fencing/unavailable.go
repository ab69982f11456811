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

// Unconfirmed is what a verb that gives something back says when etcd has not confirmed it in time
// and it goes on without the caller. ctx is the context of the waiting, last the error of the last
// attempt, if there was one. Unlike Unavailable it has its type also when ctx was cancelled: what
// is given back is still there, and who only looks for ErrUnavailable must hear of it.
func Unconfirmed(ctx context.Context, op, key string, last error) *CoordinationUnavailableError {
	u := &CoordinationUnavailableError{Op: op, Key: key, Reason: Backend}
	kind := backend.Classify(last)
	switch {
	case kind == backend.NoSpace:
		u.Reason = NoSpace
	case kind == backend.Denied:
		u.Reason = Denied
	case kind == backend.Timeout, errors.Is(ctx.Err(), context.DeadlineExceeded):
		u.Reason, last = Timeout, timeoutCause(ctx, last)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(last, cause) {
		last = errors.Join(cause, last)
	}
	u.Err = errors.Join(last, errors.New("not confirmed; it goes on in the background"))
	return u
}
