package etcdcoord_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// heard is a set of hooks that write down what they are told, and how long it took.
type heard struct {
	calls    chan string
	took     chan time.Duration
	renewals chan error
}

func listening() (*heard, func(*etcdcoord.Config)) {
	h := &heard{make(chan string, 1000), make(chan time.Duration, 1000), make(chan error, 100_000)}
	say := func(d time.Duration, what string, args ...any) {
		h.calls <- fmt.Sprintf(what, args...)
		h.took <- d
	}
	return h, func(cfg *etcdcoord.Config) {
		cfg.Hooks = etcdcoord.Hooks{
			Reserved: func(key string, took time.Duration, err error) {
				say(took, "reserved %s %v", key, errors.Is(err, etcdcoord.ErrUnavailable) || errors.Is(err, etcdcoord.ErrStopped))
			},
			TurnGranted:  func(key string, waited time.Duration) { say(waited, "granted %s", key) },
			TurnReleased: func(key string, held time.Duration) { say(held, "released %s", key) },
			TurnLost:     func(key string, reason etcdcoord.LostReason) { say(0, "lost %s %s", key, reason) },
			Renewed:      func(_ time.Duration, err error) { h.renewals <- err },
		}
	}
}

func (h *heard) next(t *testing.T) (string, time.Duration) {
	t.Helper()
	return got(t, h.calls), got(t, h.took)
}

func TestEveryHookIsCalledWithWhatItPromises(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	h, hooks := listening()
	begun := time.Now()
	c, w := b.started("a", hooks)
	step := func(want string) time.Duration {
		t.Helper()
		what, took := h.next(t)
		require.Equal(t, want, what)
		require.GreaterOrEqual(t, took, time.Duration(0))
		require.Less(t, took, time.Since(begun))
		return took
	}
	turn := take(t, c, "k")
	require.NotZero(t, step("reserved k false"))
	step("granted k")

	// The next one waits; how long is measured from AcquireTurn on.
	ticket := reserve(t, c, "k")
	step("reserved k false")
	asked := time.Now()
	second := make(chan *etcdcoord.Turn, 1)
	go func() {
		turn, err := c.AcquireTurn(within(t, patience), ticket)
		if err != nil {
			t.Error(err)
		}
		second <- turn
	}()
	require.NoError(t, turn.Release(within(t, patience)))
	step("released k")
	next := got(t, second)
	require.LessOrEqual(t, step("granted k"), time.Since(asked))

	w.set(func(_ context.Context, method string, _ any) (bool, error) {
		if method == "/etcdserverpb.KV/Txn" {
			return false, status.Error(codes.Unknown, "lost")
		}
		return true, nil
	})
	_, err := c.Reserve(within(t, patience), "k")
	require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
	step("reserved k true")
	w.set(nil)

	b.kill(c)
	got(t, next.Context().Done())
	step("lost k expired")
	last := take(t, c, "k2") // in the next session
	step("reserved k2 false")
	step("granted k2")
	require.NoError(t, c.Stop(within(t, patience)))
	step("lost k2 stopped")
	require.Error(t, last.AssertHeld())
	_, err = c.Reserve(within(t, patience), "k")
	require.ErrorIs(t, err, etcdcoord.ErrStopped)
	step("reserved k true")
	require.Empty(t, h.calls)
}

func TestRenewalsAreToldWithTheirErrors(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	h, hooks := listening()
	c, w := b.started("a", hooks)
	require.NoError(t, got(t, h.renewals))
	w.set(func(_ context.Context, method string, _ any) (bool, error) {
		if method == "/etcdserverpb.Lease/LeaseKeepAlive" {
			return false, status.Error(codes.PermissionDenied, "not you")
		}
		return true, nil
	})
	eventually(t, "no error is told", func() bool { return got(t, h.renewals) != nil })
	require.NotZero(t, c.Stats().RenewalErrors)
	w.set(nil)
	eventually(t, "no success is told", func() bool { return got(t, h.renewals) == nil })
	require.Equal(t, "running", c.Stats().State, "it was renewed in time")
	require.Zero(t, c.Stats().SessionsLost)
}
