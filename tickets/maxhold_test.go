package tickets_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/tickets"
)

func TestMaxHoldEndsTheTurnAndHandsTheKeyOn(t *testing.T) {
	t.Parallel()
	env, a, b := two(t, maxHold(200*time.Millisecond))
	turn := a.take(t, key)
	require.NoError(t, turn.AssertHeld())
	next := won(t, acquiring(within(t, patience), b.reserve(t, key)))
	lost(t, context.Cause(turn.Context()), fencing.MaxHold)
	lost(t, turn.AssertHeld(), fencing.MaxHold)
	require.Equal(t, "a", previous(next))
	require.Greater(t, next.Fence(), turn.Fence())
	release(t, turn) // frees nobody else's
	require.NotEmpty(t, env.tickets(key))
	require.Equal(t, []string{
		"granted " + key + " " + itoa(turn.Fence()), "lost " + key + " " + itoa(turn.Fence()) + " max-hold",
	}, a.heard(), "and not released as well")
}

// A timer per turn that ran on would keep every turn of the last MaxHold in memory.
func TestTheTimerOfMaxHoldEndsWithTheTurn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, env *bench, a *replica, turn *tickets.Turn){
		"released": func(t *testing.T, _ *bench, _ *replica, turn *tickets.Turn) { release(t, turn) },
		"evicted": func(t *testing.T, env *bench, _ *replica, turn *tickets.Turn) {
			env.delete(env.tickets(key)[0])
			got(t, turn.Context().Done())
			eventually(t, "told", func() bool { return turn.Release(context.Background()) == nil })
		},
		"epoch over": func(_ *testing.T, _ *bench, a *replica, _ *tickets.Turn) {
			a.End(fencing.Stopped, nil, errStopped)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, a, _ := two(t, maxHold(time.Hour))
			turn := a.take(t, key)
			end(t, env, a, turn)
			require.False(t, turn.TimerRuns())
		})
	}
	t.Run("still held", func(t *testing.T) { // the check can fail
		t.Parallel()
		_, a, _ := two(t, maxHold(time.Hour))
		require.True(t, a.take(t, key).TimerRuns())
	})
	t.Run("no MaxHold", func(t *testing.T) {
		t.Parallel()
		_, a, _ := two(t)
		require.False(t, a.take(t, key).TimerRuns())
	})
}
