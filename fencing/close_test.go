package fencing_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// closeLimit is what a Close with verbs under way may take, and a busy machine on top.
const closeLimit = 5 * time.Second

// told reports the first request that reaches the fault.
func told(f fault) (fault, <-chan struct{}) {
	reached := make(chan struct{}, 1)
	return func(ctx context.Context, send func(context.Context) error) error {
		select {
		case reached <- struct{}{}:
		default:
		}
		return f(ctx, send)
	}, reached
}

// acquiring is an Acquire under way.
func (r rig) acquiring(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := r.p.Acquire(ctx, "k", "a", long)
		done <- err
	}()
	return done
}

func (r rig) close() (took time.Duration) {
	began := time.Now()
	r.p.Close()
	return time.Since(began)
}

// An Acquire is under way when Close comes, and its answer is lost.
func TestAcquireThatCloseOvertakesLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{"the grant's answer": grant, "the write's answer": write} {
		t.Run(name+", and it gives up by itself", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			lost, reached := told(loseAnswer)
			r.set(request, lost)
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			defer cancel()
			failed := r.acquiring(ctx)
			<-reached
			require.Less(t, r.close(), closeLimit)
			unavailable(t, <-failed, fencing.Timeout)
			r.nothingRemains(r.leases())
		})
		t.Run(name+", and it would wait for long", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			lost, reached := told(loseAnswer)
			r.set(request, lost)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			failed := r.acquiring(ctx)
			<-reached
			require.Less(t, r.close(), closeLimit)
			require.ErrorIs(t, <-failed, fencing.ErrClosed)
			r.nothingRemains(r.leases())
		})
		t.Run(name+", and it does not even hear of Close", func(t *testing.T) {
			t.Parallel()
			r, deaf := newRig(t), make(chan struct{})
			lost, reached := told(func(ctx context.Context, send func(context.Context) error) error {
				err := send(context.WithoutCancel(ctx))
				<-deaf
				if err != nil {
					return err
				}
				return context.DeadlineExceeded
			})
			r.set(request, lost)
			failed := r.acquiring(t.Context())
			<-reached
			require.Less(t, r.close(), closeLimit, "Close does not wait for it for ever")
			close(deaf)
			require.Error(t, <-failed)
			r.nothingRemains(r.leases())
		})
	}
}

func TestCloseIsBoundedWhenEtcdAnswersNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lost, reached := told(loseAnswer)
	r.set(write, lost)
	r.set(revoke, loseRequest)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	failed := r.acquiring(ctx)
	<-reached
	require.Less(t, r.close(), closeLimit)
	require.ErrorIs(t, <-failed, fencing.ErrClosed)
}

func TestAcquireThatSucceedsWhileCloseWaitsHoldsTheKey(t *testing.T) {
	t.Parallel()
	r, hold := newRig(t), make(gate)
	held, reached := told(hold.fault)
	r.set(write, held)
	done := make(chan error, 1)
	var g fencing.LeaseGrant
	go func() {
		var err error
		g, err = r.p.Acquire(t.Context(), "k", "a", long)
		done <- err
	}()
	<-reached
	closed := make(chan struct{})
	go func() { r.p.Close(); close(closed) }()
	require.Eventually(t, func() bool { // so that Close has begun
		_, _, err := r.p.Holder(t.Context(), "k")
		return err != nil
	}, soon, pause)
	close(hold)
	require.NoError(t, <-done)
	<-closed
	r.cleanedUp(r.other, "k", g)
}

func TestReleaseThatCloseOvertakesIsNotConfirmedAndDoneAllTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g, err := r.p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	lost, reached := told(newLate().fault) // the read in the background passes
	r.set(read, lost)
	failed := make(chan error, 1)
	go func() { failed <- r.p.Release(t.Context(), "k", "a", g.Token) }()
	<-reached
	closed := make(chan struct{})
	go func() { r.p.Close(); close(closed) }()
	err = <-failed
	require.ErrorIs(t, err, fencing.ErrUnavailable)
	require.ErrorIs(t, err, fencing.ErrClosed)
	<-closed
	r.nothingRemains(r.leases())
}
