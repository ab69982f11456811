package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
)

// apart is a replica whose only way to etcd is a proxy of its own, healed before the replica is
// stopped.
func (b *bot) apart(id string, opts ...option) (*etcdcoord.Coordinator, *faultproxy.Proxy) {
	b.t.Helper()
	proxy := faultproxy.Before(b.t, b.etcd.Endpoints()[0])
	c := b.replicaOn(clientThrough(b.t, b.etcd, proxy), id, opts...)
	b.t.Cleanup(proxy.Heal)
	return c, proxy
}

// F3
func TestHolderIsToldOfABlackHoleBeforeEtcdFreesItsKey(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	lives := []time.Duration{2 * time.Second, 3 * time.Second, 5 * time.Second}
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		margins = make(map[time.Duration][]time.Duration)
	)
	for i := range 50 {
		life := lives[i%len(lives)]
		hole := b.dig(fmt.Sprint("holder-", i), life)
		wg.Go(func() {
			margin, err := hole.fall()
			if err != nil {
				t.Errorf("TTL %v: %v", life, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			margins[life] = append(margins[life], margin)
		})
	}
	wg.Wait()
	for _, life := range lives {
		of := margins[life]
		require.NotEmpty(t, of)
		slices.Sort(of)
		t.Logf("TTL %v: %d black holes, the holder knew at least %v before its key was gone, %v in the median",
			life, len(of), of[0].Round(time.Millisecond), of[len(of)/2].Round(time.Millisecond))
	}
}

// hole is a holder that will be cut off, and the watch of a rival who is not.
type hole struct {
	proxy *faultproxy.Proxy
	c     *etcdcoord.Coordinator
	turn  *etcdcoord.Turn
	life  time.Duration
	seen  clientv3.WatchChan
}

func (b *bot) dig(id string, life time.Duration) *hole {
	b.t.Helper()
	h := &hole{life: life, proxy: faultproxy.Before(b.t, b.etcd.Endpoints()[0])}
	h.c = b.unstarted(clientThrough(b.t, b.etcd, h.proxy), id, ttl(life), requestTimeout(time.Second))
	b.t.Cleanup(func() { stop(b.t, h.c) })
	b.t.Cleanup(h.proxy.Heal)
	// A session of 2 s may end before it begins where fifty of them are made and the machine is busy.
	require.Eventually(b.t, func() bool { return h.c.Start(soon(b.t)) == nil }, patience, time.Millisecond)
	h.turn = take(b.t, h.c, id)
	h.seen = b.plain.Watch(b.t.Context(), b.prefix+"v1/turns/"+id+"/tickets/", clientv3.WithPrefix(), clientv3.WithFilterPut())
	return h
}

// fall cuts the holder off at a random moment between two renewals, and tells how much earlier than
// the rival it knew. It leaves the replica stopped.
func (h *hole) fall() (margin time.Duration, err error) {
	knew := make(chan time.Time, 1)
	defer context.AfterFunc(h.turn.Context(), func() { knew <- time.Now() })()
	<-time.After(rand.N(h.life))
	h.proxy.Drop()
	select {
	case answer := <-h.seen:
		ended := h.turn.Context().Err() != nil // before anything else
		gone := time.Now()
		if len(answer.Events) != 1 {
			return 0, fmt.Errorf("the rival's watch: %+v, %v", answer.Events, answer.Err())
		}
		if !ended {
			return 0, errors.New("the key is gone and the holder does not know")
		}
		margin = gone.Sub(<-knew)
	case <-time.After(patience):
		return 0, errors.New("the key stays")
	}
	var lost *etcdcoord.LeaseLostError
	if !errors.As(context.Cause(h.turn.Context()), &lost) || lost.Reason != etcdcoord.Expired {
		return 0, fmt.Errorf("the cause is %v", context.Cause(h.turn.Context()))
	}
	h.proxy.Heal()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return margin, h.c.Stop(ctx)
}

func TestCutOffReplicaHealsByItselfAndGetsNothingBack(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, proxy := b.apart("a", ttl(2*time.Second), requestTimeout(time.Second))
	rival := b.replica("b")
	lostSession, restored := collect[etcdcoord.SessionLost](t, a), collect[etcdcoord.SessionRestored](t, a)
	turn := take(t, a, "chat")
	leadership, err := a.Lead(soon(t), "cron")
	require.NoError(t, err)
	others, err := rival.Lead(soon(t), "poller")
	require.NoError(t, err)
	campaign := leading(soon(t), a, "poller")
	require.Eventually(t, func() bool { return len(b.keys("v1/elections/poller/")) == 2 }, patience, 5*time.Millisecond)
	waitedFor := take(t, rival, "other chat")
	waiting := acquiring(soon(t), a, reserve(t, a, "other chat"))
	rivalsTurn := acquiring(soon(t), rival, reserve(t, rival, "chat"))
	rivalsLead := leading(soon(t), rival, "cron")

	proxy.Drop()
	next := acquired(t, rivalsTurn)
	lost(t, turn.AssertHeld(), etcdcoord.Expired) // whatever the rival was granted first
	lost(t, context.Cause(turn.Context()), etcdcoord.Expired)
	require.Greater(t, next.Fence(), turn.Fence())
	nextLeader := elected(t, rivalsLead)
	lost(t, leadership.AssertHeld(), etcdcoord.Expired)
	lost(t, context.Cause(leadership.Context()), etcdcoord.Expired)
	require.Greater(t, nextLeader.Fence(), leadership.Fence())
	lost(t, got(t, waiting).err, etcdcoord.Superseded)
	require.Error(t, got(t, lostSession).Err)

	// In the gap a Reserve waits for the next session: as long as its context does.
	require.Equal(t, "healing", a.Stats().State)
	impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = a.Reserve(impatient, "later")
	require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	reserved := make(chan error, 1)
	go func() {
		ticket, err := a.Reserve(soon(t), "later")
		if err == nil {
			_, err = a.AcquireTurn(soon(t), ticket)
		}
		reserved <- err
	}()
	notYet(t, restored, "etcd is out of reach")

	healed := time.Now()
	proxy.Heal()
	r := got(t, restored)
	within(t, healed, 2*time.Second, "healing")
	require.Positive(t, r.Gap)
	require.False(t, r.ClusterChanged)
	require.NoError(t, got(t, reserved))

	lost(t, turn.AssertHeld(), etcdcoord.Expired)
	lost(t, leadership.AssertHeld(), etcdcoord.Expired)
	require.NoError(t, turn.Release(soon(t)))
	require.NoError(t, leadership.Resign(soon(t)))
	require.NoError(t, next.AssertHeld(), "a late release freed somebody else's turn")
	require.Len(t, b.keys("v1/turns/chat/tickets/"), 1)
	require.NoError(t, nextLeader.AssertHeld())
	require.Len(t, b.keys("v1/elections/cron/"), 1)

	notYet(t, campaign, "the rival leads")
	require.NoError(t, others.Resign(soon(t)))
	require.Greater(t, elected(t, campaign).Fence(), others.Fence(), "a campaign goes on in the next session")
	again := acquiring(soon(t), a, reserve(t, a, "chat"))
	release(t, next)
	require.Greater(t, acquired(t, again).Fence(), next.Fence())
	release(t, waitedFor)
	notYet(t, restored, "one loss, one restoration")
	require.EqualValues(t, 1, a.Stats().SessionsLost)
}

// F19, with a black hole: every call returns by its context.
func TestEveryCallReturnsByItsContextWhenEtcdDoesNotAnswer(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	b := newBot(t)
	a, proxy := b.apart("a", ttl(30*time.Second))
	rival := b.replica("b")
	owners := a.Leases()
	held, err := owners.Acquire(soon(t), "lease", "me", time.Minute)
	require.NoError(t, err)
	toRelease, err := owners.Acquire(soon(t), "released lease", "me", time.Minute)
	require.NoError(t, err)
	leadership, err := a.Lead(soon(t), "cron")
	require.NoError(t, err)
	others, err := rival.Lead(soon(t), "poller")
	require.NoError(t, err)
	released, behindOthers := take(t, a, "released"), reserve(t, a, "behind others")
	cancelled := reserve(t, a, "cancelled")
	blocking := take(t, rival, "blocked")
	blocked := reserve(t, a, "blocked")
	leaving, unstarted := b.unstarted(clientThrough(t, b.etcd, proxy), "leaving"), b.unstarted(clientThrough(t, b.etcd, proxy), "unstarted")
	require.NoError(t, leaving.Start(soon(t)))
	t.Cleanup(func() { stop(t, leaving) })
	leavingTurn := take(t, leaving, "left")

	unreachable := map[string]func(context.Context) error{
		"Reserve":     func(ctx context.Context) error { _, err := a.Reserve(ctx, "new"); return err },
		"AcquireTurn": func(ctx context.Context) error { _, err := a.AcquireTurn(ctx, blocked); return err },
		"Release":     released.Release,
		"Cancel":      cancelled.Cancel,
		"Lead":        func(ctx context.Context) error { _, err := a.Lead(ctx, "new"); return err },
		"Lead behind a leader": func(ctx context.Context) error {
			_, err := a.Lead(ctx, "poller")
			return err
		},
		"TryLead": func(ctx context.Context) error { _, err := a.TryLead(ctx, "other new"); return err },
		"Resign":  leadership.Resign,
		"Leases.Acquire": func(ctx context.Context) error {
			_, err := owners.Acquire(ctx, "new", "me", time.Minute)
			return err
		},
		"Leases.Renew": func(ctx context.Context) error {
			_, err := owners.Renew(ctx, "lease", "me", held.Token, time.Minute)
			return err
		},
		"Leases.Release": func(ctx context.Context) error {
			return owners.Release(ctx, "released lease", "me", toRelease.Token)
		},
		"Start": unstarted.Start,
		"Stop":  leaving.Stop,
	}
	proxy.Drop()
	var wg sync.WaitGroup
	for name, call := range unreachable {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			began := time.Now()
			err := call(ctx)
			took := time.Since(began)
			t.Logf("%s: %v, %v", name, took.Round(time.Millisecond), err)
			if took > limit+noise {
				t.Errorf("%s took %v", name, took)
			}
			if !errors.Is(err, etcdcoord.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wg.Wait()
	lost(t, leavingTurn.AssertHeld(), etcdcoord.Stopped)
	require.Equal(t, "new", unstarted.Stats().State)
	require.Equal(t, "stopped", leaving.Stats().State)
	// What needs no answer is answered.
	require.NoError(t, a.Start(soon(t)))
	turn := acquire(t, a, behindOthers)
	require.NoError(t, turn.AssertHeld())
	require.ErrorIs(t, released.AssertHeld(), etcdcoord.ErrReleased)

	// What was not confirmed goes on in the background; nothing that was lost or given back stays.
	proxy.Heal()
	require.Eventually(t, func() bool {
		return len(b.tickets()) == 2 && len(b.keys("v1/elections/")) == 1 && len(b.keys("v1/leases/")) == 1
	}, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { return len(b.keys("v1/replicas/")) == 2 }, patience, 10*time.Millisecond)
	require.NoError(t, turn.AssertHeld())
	require.NoError(t, blocking.AssertHeld())
	require.NoError(t, others.AssertHeld())
	release(t, take(t, a, "new"))
}
