package backend_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

type userKey struct{}

func TestRequestsAreBoundedByTheCallerOrElseByTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := backend.WithTimeout(context.Background(), time.Second)
		defer cancel()
		<-ctx.Done()
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)

		patient, end := context.WithTimeout(context.Background(), time.Hour)
		defer end()
		began = time.Now()
		ctx, cancel = backend.WithTimeout(patient, time.Second)
		defer cancel()
		<-ctx.Done()
		require.Equal(t, time.Hour, time.Since(began), "a longer deadline of the caller is obeyed")

		ctx, cancel = backend.WithTimeout(context.Background(), time.Second)
		cancel()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
	})
}

func TestGivingBackOutlivesAContextThatHadEndedAndNoOther(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(parent context.Context) context.Context{
		"cancelled": func(parent context.Context) context.Context {
			ctx, cancel := context.WithCancel(parent)
			cancel()
			return ctx
		},
		"past its deadline": func(parent context.Context) context.Context {
			ctx, cancel := context.WithDeadline(parent, time.Now().Add(-time.Second))
			cancel()
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := backend.ForGivingBack(end(context.WithValue(context.Background(), userKey{}, "me")), time.Hour)
				defer cancel()
				require.NoError(t, ctx.Err())
				require.Equal(t, "me", ctx.Value(userKey{}), "values are kept")
				<-ctx.Done()
				require.Equal(t, backend.DetachedLimit, time.Since(began))
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		// One that still lives is obeyed: its cancellation, its deadline, and the limit.
		parent, cancelParent := context.WithCancel(context.Background())
		ctx, cancel := backend.ForGivingBack(parent, time.Hour)
		defer cancel()
		cancelParent()
		require.ErrorIs(t, ctx.Err(), context.Canceled)

		began := time.Now()
		short, end := context.WithTimeout(context.Background(), time.Millisecond)
		defer end()
		ctx, cancel = backend.ForGivingBack(short, time.Hour)
		defer cancel()
		<-ctx.Done()
		require.Equal(t, time.Millisecond, time.Since(began))

		began = time.Now()
		ctx, cancel = backend.ForGivingBack(context.Background(), time.Hour)
		defer cancel()
		<-ctx.Done()
		require.Equal(t, time.Hour, time.Since(began))
	})
}
