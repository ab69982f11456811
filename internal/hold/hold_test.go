package hold_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/hold"
)

func forever() error { return nil }

func TestALiveHoldIsHeldAndKnowsWhatItIs(t *testing.T) {
	t.Parallel()
	h := hold.New("k", 7, forever)
	require.Equal(t, "k", h.Key())
	require.Equal(t, fencing.Token(7), h.Token())
	require.NoError(t, h.AssertHeld())
	require.NoError(t, h.Context().Err())
	_, bounded := h.Context().Deadline()
	require.False(t, bounded)
	h.End(hold.ErrReleased)
}

func TestTheFirstCauseStays(t *testing.T) {
	t.Parallel()
	h := hold.New("k", 7, forever)
	h.End(hold.ErrReleased)
	require.Equal(t, hold.ErrReleased, h.Lose(fencing.Expired, nil), "Lose says what it ended with")
	require.Equal(t, hold.ErrReleased, context.Cause(h.Context()))
	require.Equal(t, hold.ErrReleased, h.AssertHeld())

	why := errors.New("why")
	h = hold.New("k", 7, forever)
	lost := h.Lose(fencing.Evicted, why)
	h.End(hold.ErrReleased)
	require.Equal(t, lost, h.AssertHeld())
	require.Equal(t, &fencing.LeaseLostError{Key: "k", Token: 7, Reason: fencing.Evicted, Err: why}, lost)
	require.ErrorIs(t, h.Context().Err(), context.Canceled)
}

func TestAssertHeldAsksTheSessionAndEndsTheHold(t *testing.T) {
	t.Parallel()
	var dead error
	h := hold.New("k", 7, func() error { return dead })
	require.NoError(t, h.AssertHeld())
	dead = errors.New("frozen for an hour")
	err := h.AssertHeld()
	var lost *fencing.LeaseLostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, fencing.Expired, lost.Reason)
	require.ErrorIs(t, err, dead)
	require.Equal(t, err, context.Cause(h.Context()), "the context has ended with it")
	dead = nil
	require.Equal(t, err, h.AssertHeld(), "it stays lost")
}

func TestBindEndsWithTheHoldOrWithItsParent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		why := errors.New("why")
		parent, cancelParent := context.WithCancelCause(context.WithValue(t.Context(), key{}, "v"))
		parent, stop := context.WithTimeout(parent, time.Hour)
		defer stop()
		h := hold.New("k", 7, forever)
		first, done := h.Bind(parent)
		defer done()
		second, done2 := h.Bind(context.WithoutCancel(parent))
		defer done2()
		require.Equal(t, "v", first.Value(key{}))
		deadline, ok := first.Deadline()
		require.True(t, ok)
		require.Equal(t, time.Hour, time.Until(deadline))
		require.NoError(t, first.Err())

		cancelParent(why)
		synctest.Wait()
		require.Equal(t, why, context.Cause(first))
		require.NoError(t, second.Err())
		require.NoError(t, h.AssertHeld(), "the end of a parent is not the end of the hold")

		lost := h.Lose(fencing.MaxHold, nil)
		synctest.Wait()
		require.Equal(t, lost, context.Cause(second))
		require.Equal(t, why, context.Cause(first))
	})
}

func TestBindToAHoldThatHasEndedHasEndedAtOnce(t *testing.T) {
	t.Parallel()
	h := hold.New("k", 7, forever)
	lost := h.Lose(fencing.Evicted, nil)
	ctx, done := h.Bind(t.Context())
	defer done()
	require.Equal(t, lost, context.Cause(ctx))

	h = hold.New("k", 7, func() error { return errors.New("frozen") })
	ctx, done = h.Bind(t.Context())
	defer done()
	require.ErrorIs(t, context.Cause(ctx), fencing.ErrLeaseLost, "although nobody had asked before")
}

func TestBindsCancelFreesItAndLeavesTheHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := hold.New("k", 7, forever)
		ctx, done := h.Bind(t.Context())
		done()
		require.Equal(t, context.Canceled, context.Cause(ctx))
		require.NoError(t, h.AssertHeld())
		h.End(hold.ErrReleased)
		synctest.Wait()
		require.Equal(t, context.Canceled, context.Cause(ctx))
	})
}
