package fencing

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// A provider lives as long as its process, so whatever it remembers of a lease must go with it.
func TestNothingIsRememberedOfWhatIsOver(t *testing.T) {
	t.Parallel()
	p, err := NewLeaseProvider(testetcd.Shared(t).Client(t), LeaseConfig{Prefix: testetcd.Prefix(t)})
	require.NoError(t, err)
	defer p.Close()
	ctx := t.Context()
	ended, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("the user left"))
	for _, key := range []string{"a", "b", "c"} {
		g, err := p.Acquire(ctx, key, "me", time.Hour)
		require.NoError(t, err)
		_, err = p.Acquire(ctx, key, "you", time.Hour)
		require.ErrorIs(t, err, ErrHeld)
		_, err = p.Renew(ctx, key, "me", g.Token, time.Hour)
		require.NoError(t, err)
		_, err = p.Renew(ctx, key, "you", g.Token, time.Hour)
		require.ErrorIs(t, err, ErrLeaseLost)
		p.releaseLater(key, "me", g.Token) // as after a Release that reached nothing
		p.releaseLater(key, "me", g.Token)
		require.NoError(t, p.Release(ended, key, "me", g.Token))
		_, err = p.Acquire(ctx, key+" expires", "me", 100*time.Millisecond+time.Duration(len(key)))
		require.NoError(t, err)
	}
	p.ends.set(4711, time.Now()) // an etcd lease that is gone already
	remembered := func() int {
		p.ends.mu.Lock()
		defer p.ends.mu.Unlock()
		p.releases.mu.Lock()
		defer p.releases.mu.Unlock()
		p.chores.mu.Lock()
		defer p.chores.mu.Unlock()
		return len(p.ends.leases) + len(p.ends.versions) + len(p.releases.owners) + p.chores.pending
	}
	require.Eventually(t, func() bool { return remembered() == 0 }, 5*time.Second, time.Millisecond)
}

func TestClosedProviderHoldsNoTimer(t *testing.T) {
	t.Parallel()
	p, err := NewLeaseProvider(testetcd.Shared(t).Client(t), LeaseConfig{Prefix: testetcd.Prefix(t)})
	require.NoError(t, err)
	_, err = p.Acquire(t.Context(), "k", "me", time.Hour)
	require.NoError(t, err)
	require.Len(t, p.ends.leases, 1)
	p.Close()
	require.Empty(t, p.ends.leases)
	require.Empty(t, p.ends.versions)
}
