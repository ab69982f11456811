package integration_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// kinds names what came, in order.
func kinds(events []etcdcoord.Event) (names []string) {
	for _, e := range events {
		names = append(names, fmt.Sprintf("%T", e)[len("etcdcoord."):])
	}
	return names
}

// upToRestored collects until a session is restored.
func upToRestored(t testing.TB, from <-chan etcdcoord.Event) (events []etcdcoord.Event) {
	t.Helper()
	for {
		e := got(t, from)
		events = append(events, e)
		if _, ok := e.(etcdcoord.SessionRestored); ok {
			return events
		}
	}
}

func at(t testing.TB, event etcdcoord.Event) time.Time {
	t.Helper()
	switch e := event.(type) {
	case etcdcoord.SessionLost:
		return e.At
	case etcdcoord.SessionRestored:
		return e.At
	case etcdcoord.TurnLost:
		return e.At
	case etcdcoord.LeadershipGained:
		return e.At
	case etcdcoord.LeadershipLost:
		return e.At
	case etcdcoord.TicketSkipped:
		return e.At
	case etcdcoord.ReplicaJoined:
		return e.At
	case etcdcoord.ReplicaLeft:
		return e.At
	}
	require.FailNow(t, "an event of no kind", "%T", event)
	return time.Time{}
}

func TestEventsComeInOrderAcrossKindsToEveryListener(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a")
	turns := collect[etcdcoord.TurnLost](t, a)
	all, again := collect[etcdcoord.Event](t, a), collect[etcdcoord.Event](t, a)
	const rounds = 3
	for range rounds {
		take(t, a, "chat")
		release(t, take(t, a, "released"))
		_, err := a.Lead(soon(t), "cron")
		require.NoError(t, err)
		resigned, err := a.Lead(soon(t), "resigned")
		require.NoError(t, err)
		require.NoError(t, resigned.Resign(soon(t)))
		b.revoke(a)
		events := upToRestored(t, all)
		// What was held has ended before the loss of the session is told; release and resign are no loss.
		require.Equal(t, []string{"LeadershipGained", "LeadershipGained", "TurnLost", "LeadershipLost", "SessionLost", "SessionRestored"},
			kinds(events))
		require.Equal(t, events, upToRestored(t, again))
		require.Equal(t, events[2], got(t, turns))
		require.True(t, slices.IsSortedFunc(events, func(x, y etcdcoord.Event) int { return at(t, x).Compare(at(t, y)) }))
		require.Equal(t, "cron", events[0].(etcdcoord.LeadershipGained).Name)
		require.Equal(t, events[0].(etcdcoord.LeadershipGained).Fence, events[3].(etcdcoord.LeadershipLost).Fence)
		lost(t, events[2].(etcdcoord.TurnLost).Err, etcdcoord.Expired)
		lost(t, events[3].(etcdcoord.LeadershipLost).Err, etcdcoord.Expired)
	}
	take(t, a, "chat")
	_, err := a.Lead(soon(t), "cron")
	require.NoError(t, err)
	require.NoError(t, a.Stop(soon(t)))
	// Stop has waited for the listeners: all of it is here.
	var events []etcdcoord.Event
	for len(all) > 0 {
		events = append(events, <-all)
	}
	require.Equal(t, []string{"LeadershipGained", "TurnLost", "LeadershipLost"}, kinds(events), "a Stop is no lost session")
	lost(t, events[1].(etcdcoord.TurnLost).Err, etcdcoord.Stopped)
	lost(t, events[2].(etcdcoord.LeadershipLost).Err, etcdcoord.Stopped)
	require.Len(t, turns, 1)
}

func TestSlowListenerBlocksNobodyAndMissesNothing(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a")
	blocked, busy := make(chan struct{}), make(chan struct{})
	var once sync.Once
	heard := make(chan etcdcoord.LeadershipGained, 1000)
	etcdcoord.On(a, func(e etcdcoord.LeadershipGained) {
		once.Do(func() { close(busy) })
		<-blocked
		heard <- e
	})
	quick := collect[etcdcoord.LeadershipGained](t, a)
	const n = 20
	var fences []etcdcoord.Token
	for i := range n {
		l, err := a.Lead(soon(t), "cron")
		require.NoError(t, err)
		fences = append(fences, l.Fence())
		require.NoError(t, l.Resign(soon(t)))
		release(t, take(t, a, "chat"))
		require.Equal(t, fences[i], got(t, quick).Fence)
	}
	got(t, busy)
	require.Empty(t, heard)

	// Stop waits for listeners as long as its context lets it.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	require.NoError(t, a.Stop(ctx))
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	within(t, began, 300*time.Millisecond, "Stop with a slow listener")
	require.NoError(t, a.Start(soon(t)), "a slow listener does not keep it from starting")
	close(blocked)
	require.NoError(t, a.Stop(soon(t)))
	require.Len(t, heard, n)
	for _, fence := range fences {
		require.Equal(t, fence, (<-heard).Fence, "in order, none dropped")
	}
}

func TestEveryVerbMayBeCalledInsideAListener(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a")
	done := make(chan error, 1)
	var unsubscribe func()
	var calls int
	var set sync.Mutex
	set.Lock()
	unsubscribe = etcdcoord.On(a, func(e etcdcoord.LeadershipGained) {
		set.Lock() // until unsubscribe is set
		defer set.Unlock()
		calls++
		unsubscribe()
		done <- everyVerb(soon(t), a)
	})
	set.Unlock()
	began := time.Now()
	first, err := a.Lead(soon(t), "outside")
	require.NoError(t, err)
	require.NoError(t, got(t, done))
	within(t, began, time.Second, "all verbs inside a listener")
	lost(t, context.Cause(first.Context()), etcdcoord.Stopped)
	require.NoError(t, a.Stop(soon(t)))
	require.Equal(t, 1, calls, "it unsubscribed, and led twice more")
}

func everyVerb(ctx context.Context, c *etcdcoord.Coordinator) error {
	inside := make(chan struct{}, 1)
	defer etcdcoord.On(c, func(etcdcoord.LeadershipGained) { inside <- struct{}{} })()
	turn, err := tryTurn(ctx, c, "chat")
	if err != nil {
		return fmt.Errorf("turn: %w", err)
	}
	if err := turn.Release(ctx); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	ticket, err := c.Reserve(ctx, "chat")
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	if err := ticket.Cancel(ctx); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	leadership, err := c.TryLead(ctx, "inside")
	if err != nil {
		return fmt.Errorf("try to lead: %w", err)
	}
	<-inside // another listener is served meanwhile
	if err := leadership.Resign(ctx); err != nil {
		return fmt.Errorf("resign: %w", err)
	}
	lease, err := c.Leases().Acquire(ctx, "lease", "me", time.Minute)
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	if err := c.Leases().Release(ctx, "lease", "me", lease.Token); err != nil {
		return fmt.Errorf("release of a lease: %w", err)
	}
	if state := c.Stats().State; state != "running" {
		return fmt.Errorf("state %q", state)
	}
	if err := c.Stop(ctx); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if err := c.Start(ctx); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	leadership, err = c.Lead(ctx, "inside")
	if err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	return leadership.Resign(ctx)
}

func TestStopMayBeCalledByTwoListenersAtATime(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a")
	stopped, inside := make(chan error, 3), make(chan struct{}, 2)
	for range 2 {
		etcdcoord.On(a, func(etcdcoord.SessionLost) {
			inside <- struct{}{}
			stopped <- a.Stop(soon(t))
		})
	}
	take(t, a, "chat")
	b.revoke(a)
	began := time.Now()
	for range 2 {
		got(t, inside)
	}
	go func() { stopped <- a.Stop(soon(t)) }()
	for range 3 {
		require.NoError(t, got(t, stopped))
	}
	within(t, began, time.Second, "three stops, two of them inside listeners")
	require.Equal(t, "stopped", a.Stats().State)
}
