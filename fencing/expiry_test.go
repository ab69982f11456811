package fencing_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// Not parallel: it counts the goroutines of the process.
func TestManyLeasesCostNoGoroutines(t *testing.T) {
	prefix := testetcd.Prefix(t)
	p := provider(t, testetcd.Shared(t).Client(t), prefix)
	_, err := p.Acquire(t.Context(), "warm up", "a", long)
	require.NoError(t, err)
	before := runtime.NumGoroutine()
	const leases = 1000
	var acquirers errgroup.Group
	acquirers.SetLimit(50)
	for i := range leases {
		acquirers.Go(func() error {
			_, err := p.Acquire(t.Context(), fmt.Sprint(i), "a", long)
			return err
		})
	}
	require.NoError(t, acquirers.Wait())
	require.Less(t, runtime.NumGoroutine(), before+100)
}

// The delete is seen by a watch of somebody else, so no answer of ours is in the measurement.
func TestLeasesEndToTheMillisecondButNeverEarlier(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	w, client := newWire(t)
	p, d := provider(t, client, prefix), newDirect(t, prefix)
	watched, stop := context.WithCancel(t.Context())
	defer stop()
	deletes := d.Watch(watched, prefix, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	<-deletes

	until := make(map[string]time.Time)
	for _, ttl := range []time.Duration{301 * time.Millisecond, 450*time.Millisecond + 1, 999 * time.Millisecond, time.Second, 1234 * time.Millisecond} {
		g, err := p.Acquire(t.Context(), ttl.String(), "a", ttl)
		require.NoError(t, err)
		until[prefix+"v1/leases/"+ttl.String()] = g.Until
	}
	// Extended from long to short, and from short to longer.
	shortened, err := p.Acquire(t.Context(), "shortened", "a", long)
	require.NoError(t, err)
	shortened, err = p.Renew(t.Context(), "shortened", "a", shortened.Token, 350*time.Millisecond)
	require.NoError(t, err)
	until[prefix+"v1/leases/shortened"] = shortened.Until
	extended, err := p.Acquire(t.Context(), "extended", "a", 300*time.Millisecond)
	require.NoError(t, err)
	extended, err = p.Renew(t.Context(), "extended", "a", extended.Token, 800*time.Millisecond)
	require.NoError(t, err)
	until[prefix+"v1/leases/extended"] = extended.Until

	for len(until) > 0 {
		answer := <-deletes
		now := time.Now()
		for _, event := range answer.Events {
			require.Equal(t, clientv3.EventTypeDelete, event.Type)
			end, ours := until[string(event.Kv.Key)]
			require.True(t, ours, "%s was deleted twice, or is none of ours", event.Kv.Key)
			delete(until, string(event.Kv.Key))
			over := now.Sub(end)
			t.Logf("%s: %v after its end", event.Kv.Key, over)
			require.Positive(t, over, "%s ended too early", event.Kv.Key)
			require.Less(t, over, 400*time.Millisecond, "%s ended by etcd instead of by us", event.Kv.Key)
		}
	}
	d.nothingRemains(w.leases())
}

func TestDeadProcessHoldsForItsTimeRoundedUp(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	dying := provider(t, testetcd.Shared(t).Client(t), prefix)
	rival := provider(t, testetcd.Shared(t).Client(t), prefix)
	const ttl = 1200 * time.Millisecond
	g, err := dying.Acquire(t.Context(), "k", "a", ttl)
	require.NoError(t, err)
	dying.Close() // its timers are what dies
	next, at := granted(t, rival, "k", "b")
	require.Positive(t, at.Sub(g.Until), "before its end")
	require.Less(t, at.Sub(g.Until.Add(-ttl)), 2*time.Second+time.Second, "two seconds, and etcd's own delay")
	require.Greater(t, next.Token, g.Token)
}

func TestTimerDoesNotHitWhatAnotherProcessOfTheOwnerExtended(t *testing.T) {
	t.Parallel()
	for name, extend := range map[string]func(p *fencing.EtcdLeases, g fencing.LeaseGrant) (fencing.LeaseGrant, error){
		"renew": func(p *fencing.EtcdLeases, g fencing.LeaseGrant) (fencing.LeaseGrant, error) {
			return p.Renew(t.Context(), g.Key, g.Owner, g.Token, long)
		},
		"acquire": func(p *fencing.EtcdLeases, g fencing.LeaseGrant) (fencing.LeaseGrant, error) {
			return p.Acquire(t.Context(), g.Key, g.Owner, long)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := testetcd.Prefix(t)
			w, client := newWire(t)
			first, second := provider(t, client, prefix), provider(t, testetcd.Shared(t).Client(t), prefix)
			g, err := first.Acquire(t.Context(), "k", "a", 300*time.Millisecond)
			require.NoError(t, err)
			extended, err := extend(second, g)
			require.NoError(t, err)
			require.Equal(t, g.Token, extended.Token)
			require.Eventually(t, func() bool { return w.count(revoke) > 0 }, soon, pause, "the timer of the first process")
			require.False(t, time.Now().Before(g.Until))
			require.Equal(t, g.Token, held(t, first, "k").Token)
			require.Equal(t, long, held(t, second, "k").TTL)
		})
	}
}

// A process that died leaves an etcd lease that nobody else knows but from the record.
func TestEtcdLeaseOfAProcessThatIsGoneIsRevokedByWhoGoesOn(t *testing.T) {
	t.Parallel()
	for name, goOn := range map[string]func(p *fencing.EtcdLeases, g fencing.LeaseGrant) error{
		"extend": func(p *fencing.EtcdLeases, g fencing.LeaseGrant) error {
			_, err := p.Renew(t.Context(), g.Key, g.Owner, g.Token, long)
			return err
		},
		"release": func(p *fencing.EtcdLeases, g fencing.LeaseGrant) error {
			return p.Release(t.Context(), g.Key, g.Owner, g.Token)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := testetcd.Prefix(t)
			w, client := newWire(t)
			gone, p := provider(t, client, prefix), provider(t, testetcd.Shared(t).Client(t), prefix)
			g, err := gone.Acquire(t.Context(), "k", "a", long)
			require.NoError(t, err)
			gone.Close()
			require.NoError(t, goOn(p, g))
			d := newDirect(t, prefix)
			require.Eventually(t, func() bool { return !d.lives(w.leases()[0]) }, soon, pause)
		})
	}
}

// The revoke at the end is held up, as by a slow etcd. Whoever asks through the same provider does
// not wait for it, and does not revive what has ended.
func TestEndedIsEndedAlthoughEtcdStillShowsIt(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	w, client := newWire(t)
	p, d := provider(t, client, prefix), newDirect(t, prefix)
	w.set(revoke, unlessPassed(loseRequest))
	g, err := p.Acquire(t.Context(), "k", "a", 250*time.Millisecond)
	require.NoError(t, err)
	time.Sleep(time.Until(g.Until)) // the moment itself, not a wait for something to happen
	require.Len(t, d.keys(), 1, "etcd shows it")

	_, err = p.Renew(t.Context(), "k", "a", g.Token, long)
	require.ErrorIs(t, err, fencing.ErrLeaseLost)
	_, ok, err := p.Holder(t.Context(), "k")
	require.NoError(t, err)
	require.False(t, ok)
	again, err := p.Acquire(passing(t.Context()), "k", "a", long)
	require.NoError(t, err)
	require.Greater(t, again.Token, g.Token, "a new grant, although to the same owner")
}

func TestTimersOfManyEndingAtOnceAllFire(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	w, client := newWire(t)
	p := provider(t, client, prefix)
	var acquirers errgroup.Group
	acquirers.SetLimit(20)
	for i := range 200 {
		acquirers.Go(func() error {
			_, err := p.Acquire(t.Context(), fmt.Sprint(i), "a", 900*time.Millisecond)
			return err
		})
	}
	require.NoError(t, acquirers.Wait())
	newDirect(t, prefix).nothingRemains(w.leases())
}

func TestExtremeTTLs(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	w, client := newWire(t)
	p := provider(t, client, prefix)
	g, err := p.Acquire(t.Context(), "k", "a", fencing.MaxTTL)
	require.NoError(t, err)
	require.Greater(t, g.Left(), fencing.MaxTTL-time.Hour)
	require.NoError(t, p.Release(t.Context(), "k", "a", g.Token))

	// No etcd answers within a nanosecond: never reported as held.
	_, err = p.Acquire(t.Context(), "k", "a", 1)
	unavailable(t, err, fencing.Timeout)
	newDirect(t, prefix).nothingRemains(w.leases())
}
