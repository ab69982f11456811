package fencing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/andresayac/botmesh-etcd/fencing"
)

func TestWhatIsNotConfirmedSaysWhyAndThatItGoesOn(t *testing.T) {
	t.Parallel()
	why := errors.New("the user left")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	late, end := context.WithDeadlineCause(t.Context(), time.Now(), why)
	defer end()
	<-late.Done()
	other := errors.New("connection refused")
	for name, c := range map[string]struct {
		ctx    context.Context
		last   error
		reason fencing.UnavailableReason
		wraps  []error
	}{
		"cancelled":                   {cancelled, nil, fencing.Backend, []error{why}},
		"cancelled, in a request":     {cancelled, context.Canceled, fencing.Backend, []error{why, context.Canceled}},
		"cancelled, after a failure":  {cancelled, other, fencing.Backend, []error{why, other}},
		"too late":                    {late, nil, fencing.Timeout, []error{why, context.DeadlineExceeded}},
		"too late, after a failure":   {late, other, fencing.Timeout, []error{why, other, context.DeadlineExceeded}},
		"too late, after a denial":    {late, rpctypes.ErrPermissionDenied, fencing.Denied, []error{why, rpctypes.ErrPermissionDenied}},
		"cancelled, etcd being full":  {cancelled, rpctypes.ErrNoSpace, fencing.NoSpace, []error{why, rpctypes.ErrNoSpace}},
		"in time, after a timeout":    {t.Context(), context.DeadlineExceeded, fencing.Timeout, []error{context.DeadlineExceeded}},
		"in time, and nothing failed": {t.Context(), nil, fencing.Backend, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := fencing.Unconfirmed(c.ctx, "release", "k", c.last)
			require.ErrorIs(t, err, fencing.ErrUnavailable)
			require.Equal(t, "release", err.Op)
			require.Equal(t, "k", err.Key)
			require.Equal(t, c.reason, err.Reason)
			require.ErrorContains(t, err, "goes on in the background")
			for _, target := range c.wraps {
				require.ErrorIs(t, err, target)
			}
			require.Equal(t, c.reason == fencing.Timeout, errors.Is(err, context.DeadlineExceeded))
		})
	}
}
