// Package backend knows etcd's and gRPC's errors, and how long a single request may take. It is
// the one place that does.
package backend

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kind is what an error of the etcd client means to us.
type Kind int

// The kinds. Only LeaseGone, Denied, Refused and Compacted say that nothing was applied: after
// any other the request may have been applied, or may be applied later.
const (
	None      Kind = iota // no error
	Timeout               // a deadline passed on the way
	Canceled              // the caller gave up
	Failed                // etcd failed or cannot be reached; worth another try
	NoSpace               // quota used up. Does NOT mean that nothing was applied
	Denied                // authentication or permission
	LeaseGone             // the lease of a put, or the one to renew, does not exist
	Compacted             // the revision asked for is gone
	Refused               // etcd will say the same to every repetition: a bug of ours or a limit of the server
)

// Classify tells what err, as returned by a clientv3 call, means.
func Classify(err error) Kind {
	switch {
	case err == nil:
		return None
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	err = asEtcds(err)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return LeaseGone
	case errors.Is(err, rpctypes.ErrNoSpace):
		return NoSpace
	case errors.Is(err, rpctypes.ErrCompacted):
		return Compacted
	case errors.Is(err, rpctypes.ErrTooManyRequests):
		return Failed // ResourceExhausted like NoSpace, but it passes by itself
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrInvalidAuthToken),
		errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserEmpty),
		errors.Is(err, rpctypes.ErrUserNotFound):
		return Denied
	case errors.Is(err, rpctypes.ErrAuthOldRevision):
		return Failed // the auth store changed under the request; the client refreshes its token and goes on
	}
	switch code(err) {
	case codes.DeadlineExceeded:
		return Timeout
	case codes.Canceled:
		// Not the caller's context (that was asked above): a connection that was closed, or the
		// server on its way down.
		return Failed
	case codes.Unauthenticated, codes.PermissionDenied:
		return Denied
	case codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented:
		return Refused
	}
	// Among them ResourceExhausted for a message that is too large: the request, which was not sent,
	// or the answer, after the request was applied. So it is not Refused.
	return Failed
}

// asEtcds is the error as clientv3 gives it to its callers, if it still has the form in which it
// came out of gRPC: from an interceptor, a stream, or a call made beside clientv3.
func asEtcds(err error) error {
	var ofRPC interface{ GRPCStatus() *status.Status }
	if errors.As(err, &ofRPC) {
		return rpctypes.Error(ofRPC.GRPCStatus().Err())
	}
	return err
}

func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return codes.Unknown
}
