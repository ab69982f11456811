package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/andresayac/botmesh-etcd/fencing"
)

func TestErrorsMatchTheirSentinelAndNoOther(t *testing.T) {
	t.Parallel()
	below := errors.New("below")
	sentinels := []error{
		fencing.ErrLeaseLost, fencing.ErrUnavailable, fencing.ErrHeld, fencing.ErrInvalidKey, fencing.ErrInvalidTTL,
		fencing.ErrInvalidConfig, fencing.ErrClosed, fencing.ErrStaleToken,
	}
	for _, c := range []struct {
		err    error
		is     error
		unwrap error
		text   string
	}{
		{
			&fencing.LeaseLostError{Key: "k/1", Token: 7, Reason: fencing.Expired, Err: below}, fencing.ErrLeaseLost, below,
			`lease lost: "k/1" (fence 7): expired: below`,
		},
		{&fencing.LeaseLostError{Key: "k", Reason: fencing.Superseded}, fencing.ErrLeaseLost, nil, `lease lost: "k" (fence 0): superseded`},
		{
			&fencing.CoordinationUnavailableError{Op: "renew", Key: "k", Reason: fencing.NoSpace, Err: below}, fencing.ErrUnavailable, below,
			`coordination unavailable: renew "k": no-space: below`,
		},
		{&fencing.CoordinationUnavailableError{Op: "start", Reason: fencing.Denied}, fencing.ErrUnavailable, nil, `coordination unavailable: start: denied`},
		{
			&fencing.HeldError{Key: "k", Owner: `a"b`, Token: 3, TTL: time.Second}, fencing.ErrHeld, nil,
			`"k" is held by "a\"b" (fence 3) for up to 1s unless renewed`,
		},
		{&fencing.HeldError{Key: "k", Token: 3, Err: below}, fencing.ErrHeld, below, `"k" is held by somebody unknown (fence 3): below`},
		{
			&fencing.StaleTokenError{Key: "k", Token: 3, Highest: 4}, fencing.ErrStaleToken, nil,
			`stale fence token: "k": 3 is older than 4, which was seen before; drop the work`,
		},
		{&fencing.StaleTokenError{Key: "k", Highest: 4}, fencing.ErrStaleToken, nil, `stale fence token: "k": 0 is never granted`},
	} {
		require.EqualError(t, c.err, c.text)
		wrapped := fmt.Errorf("on the way: %w", c.err)
		for _, sentinel := range sentinels {
			require.Equal(t, sentinel == c.is, errors.Is(wrapped, sentinel), "%v is %v", c.err, sentinel)
		}
		if c.unwrap != nil {
			require.ErrorIs(t, wrapped, c.unwrap)
		}
	}
}

func TestUnavailableTellsTheReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		reason fencing.UnavailableReason
	}{
		"deadline":                {context.DeadlineExceeded, fencing.Timeout},
		"deadline seen by etcd":   {status.Error(codes.DeadlineExceeded, "context deadline exceeded"), fencing.Timeout},
		"cancelled by nobody":     {context.Canceled, fencing.Timeout}, // a bound of our own that was ended early
		"unreachable":             {status.Error(codes.Unavailable, "connection refused"), fencing.Backend},
		"etcd's own timeout":      {rpctypes.ErrTimeout, fencing.Backend},
		"no space":                {rpctypes.ErrNoSpace, fencing.NoSpace},
		"permission":              {rpctypes.ErrPermissionDenied, fencing.Denied},
		"lease gone":              {rpctypes.ErrLeaseNotFound, fencing.Backend},
		"something never seen":    {errors.New("?"), fencing.Backend},
		"something wrapped twice": {fmt.Errorf("a: %w", fmt.Errorf("b: %w", rpctypes.ErrNoSpace)), fencing.NoSpace},
	} {
		err := fencing.Unavailable(context.Background(), "renew", "k", c.err)
		unavailable(t, err, c.reason)
		require.ErrorIs(t, err, c.err, name)
		var e *fencing.CoordinationUnavailableError
		require.ErrorAs(t, err, &e)
		require.Equal(t, "renew", e.Op)
		require.Equal(t, "k", e.Key)
	}
}

func TestUnavailableTellsTheCallersCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("the user left")
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	err := fencing.Unavailable(cancelled, "acquire", "k", context.Canceled)
	require.ErrorIs(t, err, cause)
	require.NotErrorIs(t, err, fencing.ErrUnavailable, "the caller gave up; nothing is wrong with etcd")

	late, end := context.WithDeadlineCause(context.Background(), time.Now().Add(-time.Second), cause)
	defer end()
	err = fencing.Unavailable(late, "acquire", "k", status.Error(codes.DeadlineExceeded, "context deadline exceeded"))
	unavailable(t, err, fencing.Timeout)
	require.ErrorIs(t, err, cause)
}
