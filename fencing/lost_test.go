package fencing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// rig is a provider whose wire can fail, and somebody else's that works.
type rig struct {
	*wire
	direct
	p, other *fencing.EtcdLeases
}

func newRig(t *testing.T) rig {
	prefix := testetcd.Prefix(t)
	w, client := newWire(t)
	return rig{w, newDirect(t, prefix), provider(t, client, prefix), provider(t, testetcd.Shared(t).Client(t), prefix)}
}

// briefly is a context for a call whose answer does not come.
func briefly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestAcquireWithALostAnswerLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]struct {
		request string
		fault   fault
	}{
		"the read":               {read, loseRequest},
		"the grant, not applied": {grant, loseRequest},
		"the grant, applied":     {grant, loseAnswer},
		"the write, not applied": {write, loseRequest},
		"the write, applied":     {write, loseAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.set(lost.request, lost.fault)
			began := time.Now()
			_, err := r.p.Acquire(briefly(t), "k", "a", long)
			unavailable(t, err, fencing.Timeout)
			require.Less(t, time.Since(began), time.Second, "returns by its context")
			r.set(lost.request, nil)
			granted(t, r.other, "k", "b")
			for _, id := range r.leases() {
				require.Eventually(t, func() bool { return !r.lives(id) }, soon, pause)
			}
		})
	}
}

func TestLostGrantThatArrivesLateLeavesNoEtcdLease(t *testing.T) {
	t.Parallel()
	r, kept := newRig(t), newLate()
	r.set(grant, kept.fault)
	_, err := r.p.Acquire(briefly(t), "k", "a", long)
	unavailable(t, err, fencing.Timeout)
	require.Eventually(t, func() bool { return r.count(revoke) > 0 }, soon, pause, "cleaned up before it arrives")
	require.NoError(t, (<-kept.kept)())
	r.nothingRemains(r.leases())
}

func TestLostWriteThatArrivesAfterItsCleanUpIsRefused(t *testing.T) {
	t.Parallel()
	r, kept := newRig(t), newLate()
	r.set(write, kept.fault)
	_, err := r.p.Acquire(briefly(t), "k", "a", long)
	unavailable(t, err, fencing.Timeout)
	r.nothingRemains(r.leases())
	require.ErrorContains(t, (<-kept.kept)(), "lease not found")
	require.Empty(t, r.keys())
}

func TestSecondAttemptIsSafeFromTheFirst(t *testing.T) {
	t.Parallel()
	t.Run("whose write arrives late", func(t *testing.T) {
		t.Parallel()
		r, kept := newRig(t), newLate()
		r.set(write, kept.fault)
		r.set(revoke, loseRequest) // the late write still finds its lease
		_, err := r.p.Acquire(briefly(t), "k", "a", long)
		unavailable(t, err, fencing.Timeout)
		g, err := r.p.Acquire(t.Context(), "k", "a", long)
		require.NoError(t, err)
		require.NoError(t, (<-kept.kept)())
		r.set(write, nil)
		r.set(revoke, nil)
		r.cleanedUp(r.p, "k", g)
	})
	t.Run("whose write, an extension, arrives late", func(t *testing.T) {
		t.Parallel()
		r, kept := newRig(t), newLate()
		first, err := r.p.Acquire(t.Context(), "k", "a", long)
		require.NoError(t, err)
		r.set(write, kept.fault)
		_, err = r.p.Renew(briefly(t), "k", "a", first.Token, long)
		unavailable(t, err, fencing.Timeout)
		r.set(write, nil)
		r.set(revoke, loseRequest) // the late write still finds its lease
		g, err := r.p.Renew(t.Context(), "k", "a", first.Token, long)
		require.NoError(t, err)
		require.NoError(t, (<-kept.kept)())
		r.set(revoke, nil)
		r.cleanedUp(r.p, "k", g)
	})
	t.Run("whose write was applied", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.set(write, loseAnswer)
		r.set(revoke, unlessPassed(loseRequest))
		_, err := r.p.Acquire(briefly(t), "k", "a", long)
		unavailable(t, err, fencing.Timeout)
		r.set(write, nil)
		ghost := held(t, r.other, "k")
		g, err := r.p.Acquire(passing(t.Context()), "k", "a", long)
		require.NoError(t, err)
		require.Greater(t, g.Token, ghost.Token, "this process knows that the ghost is nobody's")
		r.set(revoke, nil)
		r.cleanedUp(r.p, "k", g)
	})
	t.Run("in another process, whose write was applied", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.set(write, loseAnswer)
		r.set(revoke, loseRequest)
		_, err := r.p.Acquire(briefly(t), "k", "a", long)
		unavailable(t, err, fencing.Timeout)
		r.set(write, nil)
		ghost := r.leaseOf("k")
		g, err := r.other.Acquire(t.Context(), "k", "a", long) // takes the ghost over
		require.NoError(t, err)
		r.set(revoke, nil)
		require.Eventually(t, func() bool { return !r.lives(ghost) }, soon, pause, "the clean-up of the first attempt")
		r.cleanedUp(r.other, "k", g)
	})
}

// cleanedUp waits until only g's etcd lease is left, and checks that g is in force.
func (r rig) cleanedUp(p *fencing.EtcdLeases, key string, g fencing.LeaseGrant) {
	r.t.Helper()
	live := r.leaseOf(key)
	for _, id := range r.leases() {
		require.Eventually(r.t, func() bool { return id == live || !r.lives(id) }, soon, pause)
	}
	require.True(r.t, r.lives(live))
	require.Equal(r.t, g.Token, held(r.t, r.other, key).Token)
	_, err := p.Renew(r.t.Context(), key, g.Owner, g.Token, long)
	require.NoError(r.t, err)
}

// pd#7707: a grant whose answer takes longer than its TTL is over before it is known.
func TestGrantThatComesAfterItsEndIsNeverReportedAsHeld(t *testing.T) {
	t.Parallel()
	const ttl = 200 * time.Millisecond
	slow := func(ctx context.Context, send func(context.Context) error) error {
		err := send(ctx)
		time.Sleep(ttl + 20*time.Millisecond)
		return err
	}
	for _, request := range []string{grant, write} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.set(request, slow)
			_, err := r.p.Acquire(t.Context(), "new", "a", ttl)
			unavailable(t, err, fencing.Timeout)
			require.ErrorContains(t, err, "the TTL of 200ms")

			r.set(request, nil)
			g, err := r.p.Acquire(t.Context(), "old", "a", long)
			require.NoError(t, err)
			r.set(request, slow)
			_, err = r.p.Renew(t.Context(), "old", "a", g.Token, ttl)
			require.ErrorIs(t, err, fencing.ErrLeaseLost)
			var lost *fencing.LeaseLostError
			require.ErrorAs(t, err, &lost)
			require.Equal(t, fencing.Expired, lost.Reason)
			r.nothingRemains(r.leases())
		})
	}
}

// So slow that even etcd has ended the lease before the write arrived.
func TestWriteThatComesAfterItsEtcdLeaseIsATimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g, err := r.p.Acquire(t.Context(), "old", "a", long)
	require.NoError(t, err)
	r.set(write, func(ctx context.Context, send func(context.Context) error) error {
		ids := r.leases()
		if _, err := r.Revoke(ctx, ids[len(ids)-1]); err != nil {
			return err
		}
		return send(ctx)
	})
	_, err = r.p.Acquire(t.Context(), "new", "a", long)
	unavailable(t, err, fencing.Timeout)
	_, err = r.p.Renew(t.Context(), "old", "a", g.Token, long)
	unavailable(t, err, fencing.Timeout)
	r.set(write, nil)
	r.cleanedUp(r.p, "old", g)
}

func TestCancelledCallReturnsTheCallersCause(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g, err := r.p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	cause := errors.New("the user left")
	r.set(write, func(ctx context.Context, send func(context.Context) error) error {
		ctx.Value(cancelKey{}).(context.CancelCauseFunc)(cause)
		return loseRequest(ctx, send)
	})
	cancelled := func() context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		return context.WithValue(ctx, cancelKey{}, cancel)
	}
	_, err = r.p.Acquire(cancelled(), "new", "a", long)
	require.ErrorIs(t, err, cause)
	_, err = r.p.Renew(cancelled(), "k", "a", g.Token, long)
	require.ErrorIs(t, err, cause)
	// A release goes on, so it says what it is: not confirmed.
	err = r.p.Release(cancelled(), "k", "a", g.Token)
	require.ErrorIs(t, err, cause)
	require.ErrorIs(t, err, fencing.ErrUnavailable)
	r.set(write, nil)
	r.nothingRemains(r.leases())
}

type cancelKey struct{}

func TestVerbsWithoutADeadlineGiveUpByThemselves(t *testing.T) {
	t.Parallel()
	w, client := newWire(t)
	p, err := fencing.NewLeaseProvider(client, fencing.LeaseConfig{Prefix: testetcd.Prefix(t), RequestTimeout: 200 * time.Millisecond})
	require.NoError(t, err)
	defer p.Close()
	w.set(read, unlessPassed(loseRequest))
	_, err = p.Acquire(context.Background(), "k", "a", long)
	unavailable(t, err, fencing.Timeout)
	_, err = p.Renew(context.Background(), "k", "a", 1, long)
	unavailable(t, err, fencing.Timeout)
	unavailable(t, p.Release(context.Background(), "k", "a", 1), fencing.Timeout)
	w.set(read, nil)
}
