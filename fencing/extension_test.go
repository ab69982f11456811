package fencing_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// The holder believes in its first grant until that one's end. Neither may the clean-up of the
// extension free the key before, nor may the extension keep it longer.
func TestLostExtensionLeavesTheEarlierGrantAsItWas(t *testing.T) {
	t.Parallel()
	const first = 1300 * time.Millisecond
	extensions := map[string]func(ctx context.Context, p *fencing.EtcdLeases, g fencing.LeaseGrant, ttl time.Duration) error{
		"renew": func(ctx context.Context, p *fencing.EtcdLeases, g fencing.LeaseGrant, ttl time.Duration) error {
			_, err := p.Renew(ctx, g.Key, g.Owner, g.Token, ttl)
			return err
		},
		"acquire": func(ctx context.Context, p *fencing.EtcdLeases, g fencing.LeaseGrant, ttl time.Duration) error {
			_, err := p.Acquire(ctx, g.Key, g.Owner, ttl)
			return err
		},
	}
	for verb, extend := range extensions {
		for name, lost := range map[string]fault{"not applied": loseRequest, "applied": loseAnswer} {
			t.Run(verb+" "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				g, err := r.p.Acquire(t.Context(), "k", "a", first)
				require.NoError(t, err)
				r.set(write, lost)
				unavailable(t, extend(briefly(t), r.p, g, long), fencing.Timeout)
				r.set(write, nil)
				_, at := granted(t, r.other, "k", "b")
				require.False(t, at.Before(g.Until), "freed %v before the holder's Until", g.Until.Sub(at))
				require.Less(t, at.Sub(g.Until), time.Second, "kept for the time of the lost extension")
			})
		}
		t.Run(verb+" to a sooner end, applied", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			g, err := r.p.Acquire(t.Context(), "k", "a", long)
			require.NoError(t, err)
			r.set(write, loseAnswer)
			asked := time.Now()
			unavailable(t, extend(briefly(t), r.p, g, first), fencing.Timeout)
			r.set(write, nil)
			_, at := granted(t, r.other, "k", "b")
			require.False(t, at.Before(asked.Add(first)), "freed %v before the end asked for", asked.Add(first).Sub(at))
			require.Less(t, at.Sub(asked.Add(first)), time.Second)
		})
	}
}

func TestExtensionAfterALostOneSucceeds(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]fault{"not applied": loseRequest, "applied": loseAnswer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			short, err := r.p.Acquire(t.Context(), "short", "a", 2*time.Second)
			require.NoError(t, err)
			g, err := r.p.Acquire(t.Context(), "k", "a", long)
			require.NoError(t, err)
			r.set(write, lost)
			_, err = r.p.Renew(briefly(t), "k", "a", g.Token, long)
			unavailable(t, err, fencing.Timeout)
			_, err = r.p.Renew(briefly(t), "short", "a", short.Token, long)
			unavailable(t, err, fencing.Timeout)
			r.set(write, nil)
			renewedShort, err := r.p.Renew(t.Context(), "short", "a", short.Token, long)
			require.NoError(t, err)
			renewed, err := r.p.Renew(t.Context(), "k", "a", g.Token, long)
			require.NoError(t, err)
			require.Equal(t, g.Token, renewed.Token)
			require.Eventually(t, func() bool { return short.Left() == 0 }, soon, pause)
			require.NoError(t, r.p.Release(t.Context(), "short", "a", renewedShort.Token), "nothing ended at the first grant's end")
			r.cleanedUp(r.p, "k", renewed)
		})
	}
}

func TestRefusedExtensionLeavesNoEtcdLease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g, err := r.p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	r.set(write, func(context.Context, func(context.Context) error) error { return rpctypes.ErrGRPCPermissionDenied })
	_, err = r.p.Renew(t.Context(), "k", "a", g.Token, long)
	unavailable(t, err, fencing.Denied)
	r.set(write, nil)
	r.cleanedUp(r.p, "k", g)
}

func TestReleaseAfterALostExtensionLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]fault{"not applied": loseRequest, "applied": loseAnswer, "late": newLate().fault} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			g, err := r.p.Acquire(t.Context(), "k", "a", long)
			require.NoError(t, err)
			r.set(write, lost)
			_, err = r.p.Renew(briefly(t), "k", "a", g.Token, long)
			unavailable(t, err, fencing.Timeout)
			r.set(write, nil)
			require.NoError(t, r.p.Release(t.Context(), "k", "a", g.Token))
			r.nothingRemains(r.leases())
		})
	}
}

// The lost extension could move the record to its own lease after the release has given up.
func TestLostReleaseEndsALostExtensionAsWell(t *testing.T) {
	t.Parallel()
	r, kept := newRig(t), newLate()
	g, err := r.p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	r.set(write, kept.fault)
	_, err = r.p.Renew(briefly(t), "k", "a", g.Token, long)
	unavailable(t, err, fencing.Timeout)
	hold := make(gate)
	r.set(revoke, hold.fault)
	r.set(write, loseRequest)
	unavailable(t, r.p.Release(briefly(t), "k", "a", g.Token), fencing.Timeout)
	require.NoError(t, (<-kept.kept)())
	require.Equal(t, r.leases()[1], r.leaseOf("k"), "the extension was applied")
	close(hold)
	r.nothingRemains(r.leases())
}

// Two calls of one owner at the same time. The answer to the first comes after the second, which
// extended it, has given up: what the first was granted is on the etcd lease of the second.
func TestLostExtensionIsNotCleanedUpUnderAnEarlierWriteWhoseAnswerIsSlow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	applied, answer := make(chan struct{}), make(chan struct{})
	r.set(write, func(ctx context.Context, send func(context.Context) error) error {
		if ctx.Value(passKey{}) == nil {
			return loseAnswer(ctx, send)
		}
		err := send(ctx)
		close(applied)
		<-answer
		return err
	})
	type result struct {
		g   fencing.LeaseGrant
		err error
	}
	done := make(chan result, 1)
	go func() {
		g, err := r.p.Acquire(passing(t.Context()), "k", "a", long)
		done <- result{g, err}
	}()
	<-applied
	first := r.leaseOf("k")
	_, err := r.p.Acquire(briefly(t), "k", "a", long)
	unavailable(t, err, fencing.Timeout)
	second := r.leaseOf("k")
	require.NotEqual(t, first, second)
	close(answer)
	granted := <-done
	require.NoError(t, granted.err)
	r.set(write, nil)
	require.Never(t, func() bool { return !r.lives(second) }, 300*time.Millisecond, 20*time.Millisecond)
	renewed, err := r.p.Renew(t.Context(), "k", "a", granted.g.Token, long)
	require.NoError(t, err)
	r.cleanedUp(r.p, "k", renewed)
}
