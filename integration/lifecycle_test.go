package integration_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// F9. The session of the one who stops would live for another 30 s.
func TestStopHandsEverythingOverAtOnceAndTellsTheHolderFirst(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, next := b.replica("a", ttl(30*time.Second)), b.replica("b")
	turn := take(t, a, "chat")
	leadership, err := a.Lead(soon(t), "cron")
	require.NoError(t, err)
	handled := make(chan error, 1)
	ctx, done := turn.Bind(t.Context())
	defer done()
	go func() {
		<-ctx.Done()
		handled <- context.Cause(ctx)
	}()
	waits, campaigns := acquiring(soon(t), next, reserve(t, next, "chat")), leading(soon(t), next, "cron")
	require.Eventually(t, func() bool { return len(b.keys("v1/elections/cron/")) == 2 }, patience, 5*time.Millisecond)

	began := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- a.Stop(soon(t)) }()
	nextTurn := acquired(t, waits)
	lost(t, context.Cause(turn.Context()), etcdcoord.Stopped) // it had ended before the next one began
	nextLeader := elected(t, campaigns)
	lost(t, context.Cause(leadership.Context()), etcdcoord.Stopped)
	within(t, began, 0, "both hand-overs by Stop")
	require.NoError(t, got(t, stopped))

	lost(t, got(t, handled), etcdcoord.Stopped)
	lost(t, turn.AssertHeld(), etcdcoord.Stopped)
	lost(t, leadership.AssertHeld(), etcdcoord.Stopped)
	previous(t, nextTurn, "a")
	require.Greater(t, nextTurn.Fence(), turn.Fence())
	require.Greater(t, nextLeader.Fence(), leadership.Fence())
	require.NoError(t, turn.Release(soon(t)))
	require.NoError(t, leadership.Resign(soon(t)))
	require.NoError(t, nextTurn.AssertHeld())
	require.Len(t, b.keys("v1/turns/chat/tickets/"), 1)
	require.Len(t, b.keys("v1/elections/cron/"), 1)
}

// F29
func TestStopEndsAllThatWaitWithErrStopped(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, other := b.replica("a"), b.replica("b")
	held := take(t, other, "chat")
	_, err := other.Lead(soon(t), "cron")
	require.NoError(t, err)
	const waiters = 20
	var all []<-chan outcome
	for range waiters {
		all = append(all, acquiring(soon(t), a, reserve(t, a, "chat")))
	}
	campaign, queued := leading(soon(t), a, "cron"), leading(soon(t), a, "cron")
	require.Eventually(t, func() bool { return a.Stats().Campaigning == 2 && len(b.keys("v1/elections/cron/")) == 2 },
		patience, 5*time.Millisecond)
	require.NoError(t, a.Stop(soon(t)))
	for _, waits := range all {
		o := got(t, waits)
		require.ErrorIs(t, o.err, etcdcoord.ErrStopped)
		require.Nil(t, o.turn)
	}
	for _, leads := range []<-chan campaignEnd{campaign, queued} {
		end := got(t, leads)
		require.ErrorIs(t, end.err, etcdcoord.ErrStopped)
		require.Nil(t, end.leadership)
	}
	require.Len(t, b.tickets(), 1)
	require.Len(t, b.keys("v1/elections/cron/"), 1)
	require.NoError(t, held.AssertHeld())
}

func TestStopLeavesNothingButHolderRecords(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a")
	release(t, take(t, a, "released"))
	take(t, a, "held")
	waits := acquiring(soon(t), a, reserve(t, a, "held"))
	reserve(t, a, "only reserved")
	require.NoError(t, reserve(t, a, "cancelled").Cancel(soon(t)))
	_, err := a.Lead(soon(t), "cron")
	require.NoError(t, err)
	require.NoError(t, a.Stop(soon(t)))
	require.ErrorIs(t, got(t, waits).err, etcdcoord.ErrStopped)
	for _, key := range b.keys("") {
		require.True(t, isHolder(key), key)
	}
	require.NoError(t, a.Stop(soon(t)), "Stop is idempotent")

	_, err = a.Reserve(soon(t), "chat")
	require.ErrorIs(t, err, etcdcoord.ErrStopped)
	_, err = a.Lead(soon(t), "cron")
	require.ErrorIs(t, err, etcdcoord.ErrStopped)
	_, err = a.TryLead(soon(t), "cron")
	require.ErrorIs(t, err, etcdcoord.ErrStopped)
}

func TestVerbsBeforeStartSayErrNotStarted(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.unstarted(b.etcd.Client(t), "a")
	_, err := c.Reserve(soon(t), "chat")
	require.ErrorIs(t, err, etcdcoord.ErrNotStarted)
	_, err = c.Lead(soon(t), "cron")
	require.ErrorIs(t, err, etcdcoord.ErrNotStarted)
	_, err = c.TryLead(soon(t), "cron")
	require.ErrorIs(t, err, etcdcoord.ErrNotStarted)
	require.Empty(t, b.keys(""), "New and refused verbs make no request")
}

func TestStopReturnsByItsDeadlineAndTheRestGoesOnWithoutIt(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, proxy := b.apart("a", ttl(30*time.Second), requestTimeout(4*time.Second))
	turn := take(t, a, "chat")
	next := b.replica("b")
	waits := acquiring(soon(t), next, reserve(t, next, "chat"))
	proxy.Drop()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := a.Stop(ctx)
	within(t, began, 300*time.Millisecond, "Stop without etcd")
	require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
	lost(t, context.Cause(turn.Context()), etcdcoord.Stopped)
	notYet(t, waits, "etcd has not heard of the stop")
	again, cancelAgain := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancelAgain()
	require.ErrorIs(t, a.Stop(again), etcdcoord.ErrUnavailable, "stopped or not, it is not confirmed")
	proxy.Heal()
	previous(t, acquired(t, waits), "a")
	require.NoError(t, a.Stop(soon(t)))
	require.Len(t, b.keys("v1/replicas/"), 1)
}

func TestStopWithALongDeadlineOutlastsAShortOutage(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, proxy := b.apart("a", ttl(30*time.Second), requestTimeout(500*time.Millisecond))
	take(t, a, "chat")
	proxy.Drop()
	stopped := make(chan error, 1)
	go func() { stopped <- a.Stop(soon(t)) }()
	select {
	case err := <-stopped:
		require.FailNow(t, "Stop gave up before its deadline", "%v", err)
	case <-time.After(1500 * time.Millisecond): // three times the request timeout
	}
	proxy.Heal()
	require.NoError(t, got(t, stopped))
	require.Empty(t, b.tickets())
	require.Empty(t, b.keys("v1/replicas/"))
}

func TestStopThatFailedIsTriedAgainByTheNextOne(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, proxy := b.apart("a", ttl(30*time.Second), requestTimeout(300*time.Millisecond))
	take(t, a, "chat")
	proxy.Drop()
	require.ErrorIs(t, a.Stop(t.Context()), etcdcoord.ErrUnavailable, "without a deadline it takes RequestTimeout")
	proxy.Heal()
	require.Len(t, b.tickets(), 1)
	require.NoError(t, a.Stop(soon(t)))
	require.Empty(t, b.tickets())
	require.Empty(t, b.keys("v1/replicas/"))
}

func TestStartAfterStopIsAFreshEpoch(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a")
	ticket, turn := reserve(t, a, "other"), take(t, a, "chat")
	first := a.Stats()
	require.NoError(t, a.Start(soon(t)), "Start is idempotent")
	require.Equal(t, first.LeaseID, a.Stats().LeaseID)
	require.NoError(t, a.Stop(soon(t)))
	require.NoError(t, a.Start(soon(t)))
	second := a.Stats()
	require.Equal(t, "running", second.State)
	require.NotEqual(t, first.LeaseID, second.LeaseID)
	require.Zero(t, second.TurnsHeld+second.TicketsWaiting)
	lost(t, turn.AssertHeld(), etcdcoord.Stopped)
	_, err := a.AcquireTurn(soon(t), ticket)
	require.ErrorIs(t, err, etcdcoord.ErrStopped, "a ticket of the former epoch")
	again := take(t, a, "chat")
	require.Greater(t, again.Fence(), turn.Fence())
	require.NoError(t, turn.Release(soon(t)))
	require.NoError(t, again.AssertHeld())
	require.Len(t, b.tickets(), 1)
}

func TestStartAndStopMayBeCalledByManyAtATime(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.unstarted(b.etcd.Client(t), "a", ttl(30*time.Second))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := c.Start(soon(t)); err != nil {
				t.Errorf("one of many starts: %v", err)
			}
		})
	}
	wg.Wait()
	require.Len(t, b.keys("v1/replicas/"), 1)
	end := time.Now().Add(2 * time.Second)
	for range 6 {
		wg.Go(func() {
			for time.Now().Before(end) {
				if rand.N(2) == 0 {
					if err := c.Stop(soon(t)); err != nil {
						t.Errorf("stop: %v", err)
					}
					continue
				}
				if err := c.Start(soon(t)); err != nil && !errors.Is(err, etcdcoord.ErrStopped) {
					t.Errorf("start: %v", err)
				}
				switch turn, err := tryTurn(soon(t), c, "chat"); {
				case err == nil:
					if err := turn.Release(soon(t)); err != nil {
						t.Errorf("release: %v", err)
					}
				case !errors.Is(err, etcdcoord.ErrStopped):
					t.Errorf("turn: %v", err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Stop(soon(t)))
	require.Empty(t, b.keys("v1/replicas/"))
	require.Empty(t, b.tickets())
	require.NoError(t, c.Start(soon(t)))
	release(t, take(t, c, "chat"))
	require.NoError(t, c.Stop(soon(t)))
}

func tryTurn(ctx context.Context, c *etcdcoord.Coordinator, key string) (*etcdcoord.Turn, error) {
	ticket, err := c.Reserve(ctx, key)
	if err != nil {
		return nil, err
	}
	return c.AcquireTurn(ctx, ticket)
}
