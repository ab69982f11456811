package fencing_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func TestLostReleaseGoesOnUntilTheKeyIsFree(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]struct {
		request string
		fault   fault
	}{
		"the read":                {read, unlessPassed(loseRequest)},
		"the delete, not applied": {write, loseRequest},
		"the delete, applied":     {write, loseAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			g, err := r.p.Acquire(t.Context(), "k", "a", long)
			require.NoError(t, err)
			r.set(lost.request, lost.fault)
			unavailable(t, r.p.Release(briefly(t), "k", "a", g.Token), fencing.Timeout)
			if err := r.p.Release(briefly(t), "k", "a", g.Token); err != nil { // the background may have done it
				unavailable(t, err, fencing.Timeout)
			}
			if lost.request == write {
				granted(t, r.other, "k", "b") // although no delete gets through
				require.Eventually(t, func() bool { return !r.lives(r.leases()[0]) }, soon, pause)
				return
			}
			r.set(lost.request, nil)
			r.nothingRemains(r.leases())
		})
	}
}

// A release that could not even read goes on in the background, under the same token that its owner
// may have been granted again meanwhile.
func TestReleaseInTheBackgroundDoesNotFreeWhatItsOwnerWasGrantedLater(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(r rig, g fencing.LeaseGrant) (fencing.LeaseGrant, error){
		"acquired": func(r rig, g fencing.LeaseGrant) (fencing.LeaseGrant, error) {
			return r.p.Acquire(passing(r.t.Context()), g.Key, g.Owner, long)
		},
		"renewed": func(r rig, g fencing.LeaseGrant) (fencing.LeaseGrant, error) {
			return r.p.Renew(passing(r.t.Context()), g.Key, g.Owner, g.Token, long)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			g, err := r.p.Acquire(t.Context(), "k", "a", long)
			require.NoError(t, err)
			cut := make(gate)
			r.set(read, unlessPassed(cut.fault))
			unavailable(t, r.p.Release(briefly(t), "k", "a", g.Token), fencing.Timeout)
			tried := r.count(read)
			require.Eventually(t, func() bool { return r.count(read) > tried }, soon, pause, "the background is at it")
			next, err := again(r, g)
			require.NoError(t, err)
			require.Equal(t, g.Token, next.Token, "the record was still there")
			close(cut)  // the read in the background sees the new record
			r.p.Close() // it waits for the background
			r.cleanedUp(r.other, "k", next)
		})
	}
}

// The same, while the new grant is only on its way when the background reads.
func TestReleaseInTheBackgroundWaitsForAGrantThatIsUnderWay(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(r rig, g fencing.LeaseGrant) error{
		"acquire": func(r rig, g fencing.LeaseGrant) error {
			_, err := r.p.Acquire(passing(r.t.Context()), g.Key, g.Owner, long)
			return err
		},
		"renew": func(r rig, g fencing.LeaseGrant) error {
			_, err := r.p.Renew(passing(r.t.Context()), g.Key, g.Owner, g.Token, long)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			g, err := r.p.Acquire(t.Context(), "k", "a", long)
			require.NoError(t, err)
			r.set(read, unlessPassed(loseRequest))
			unavailable(t, r.p.Release(briefly(t), "k", "a", g.Token), fencing.Timeout)

			applied, answer := make(chan struct{}), make(chan struct{})
			r.set(write, func(ctx context.Context, send func(context.Context) error) error {
				if ctx.Value(passKey{}) == nil {
					return send(ctx) // of the background
				}
				err := send(ctx)
				close(applied)
				<-answer
				return err
			})
			done := make(chan error, 1)
			go func() { done <- again(r, g) }()
			<-applied
			r.set(read, nil)
			// A read that was under way before has ended by its own limit of two seconds, and no
			// pause is longer than one, so the background has its chance meanwhile.
			require.Never(t, func() bool { return len(r.keys()) == 0 }, 3500*time.Millisecond, 20*time.Millisecond)
			close(answer)
			require.NoError(t, <-done)
			r.set(write, nil)
			r.p.Close()
			r.cleanedUp(r.other, "k", g)
		})
	}
}

func TestReleaseInTheBackgroundGoesOnAfterAnAcquireThatFailed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g, err := r.p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	r.set(read, loseRequest)
	unavailable(t, r.p.Release(briefly(t), "k", "a", g.Token), fencing.Timeout)
	_, err = r.p.Acquire(briefly(t), "k", "a", long)
	unavailable(t, err, fencing.Timeout)
	r.set(read, nil)
	r.nothingRemains(r.leases())
}

// etcd#22082: a release whose answer was lost is repeated after the same owner holds again.
func TestRepeatedReleaseDoesNotFreeTheNextHold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g, err := r.p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	r.set(write, loseAnswer)
	unavailable(t, r.p.Release(briefly(t), "k", "a", g.Token), fencing.Timeout)
	r.set(write, nil)
	next, err := r.p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	require.Greater(t, next.Token, g.Token)
	require.NoError(t, r.p.Release(t.Context(), "k", "a", g.Token))
	r.cleanedUp(r.p, "k", next)
}

// The delete of a release arrives after its owner has extended the hold, under the same token.
func TestLostDeleteThatArrivesLateHitsNoLaterWrite(t *testing.T) {
	t.Parallel()
	r, kept := newRig(t), newLate()
	g, err := r.p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	r.set(write, kept.fault)
	r.set(revoke, loseRequest)
	unavailable(t, r.p.Release(briefly(t), "k", "a", g.Token), fencing.Timeout)
	next, err := r.other.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	require.Equal(t, g.Token, next.Token)
	require.NoError(t, (<-kept.kept)())
	r.set(write, nil)
	r.set(revoke, nil)
	r.cleanedUp(r.other, "k", next)
}

// etcd#22123: the usual case in a defer.
func TestReleaseWithAnEndedContextIsBoundedWhenEtcdDoesNotAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g, err := r.p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.set(read, loseRequest)
	began := time.Now()
	unavailable(t, r.p.Release(ended, "k", "a", g.Token), fencing.Timeout)
	require.InDelta(t, 2, time.Since(began).Seconds(), 0.5)
	r.set(read, nil)
	r.nothingRemains(r.leases())
}

func TestReleaseAsksForNothingThatWasNeverGranted(t *testing.T) {
	t.Parallel()
	w, client := newWire(t)
	p := provider(t, client, testetcd.Prefix(t))
	require.NoError(t, p.Release(t.Context(), "k", "a", 0))
	require.NoError(t, p.Release(t.Context(), "k", "a", -7))
	require.Zero(t, w.count(read))
}
