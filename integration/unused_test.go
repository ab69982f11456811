package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// A reservation can be granted at once, by the transaction that makes it. That is no holding.
func TestReplicaStoppedBeforeItsTurnsBeganIsNobodysPreviousHolder(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, idle, c := b.replica("a"), b.replica("idle"), b.replica("c")
	const keys = 60 // more than fit into one transaction
	for i := range keys {
		release(t, take(t, a, fmt.Sprint("held by a ", i)))
	}
	for i := range keys {
		reserve(t, idle, fmt.Sprint("held by a ", i))
	}
	reserve(t, idle, "held by nobody")
	require.NoError(t, idle.Stop(soon(t)))
	for i := range keys {
		turn := take(t, c, fmt.Sprint("held by a ", i))
		names(t, turn, "a", false)
		release(t, turn)
	}
	turn := take(t, c, "held by nobody")
	_, known := turn.PreviousHolder()
	require.False(t, known)
	release(t, turn)
}

// A put by hand takes a ticket off its session, but does not delete it: it is we who do, and so we
// tell the holder first.
func TestHolderOfATicketPutOverByHandIsToldBeforeTheNextIsGranted(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	for i := range 3 {
		key := fmt.Sprint("chat ", i)
		turn := take(t, a, key)
		tickets := b.tickets()
		require.Len(t, tickets, 1)
		waiting := acquiring(soon(t), c, reserve(t, c, key))
		_, err := b.plain.Put(soon(t), b.prefix+tickets[0], "by hand")
		require.NoError(t, err)
		next := got(t, waiting)
		require.NoError(t, next.err)
		lost(t, context.Cause(turn.Context()), etcdcoord.Evicted)
		require.Greater(t, next.turn.Fence(), turn.Fence())
		release(t, turn)
		release(t, next.turn)
		b.noTickets()
	}
}

// A nudge can arrive after its ticket has left. Nobody would take it out of the inbox then.
func TestInboxesOfIdleReplicasAreEmpty(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	replicas := []*etcdcoord.Coordinator{b.replica("a"), b.replica("b"), b.replica("c")}
	var wg sync.WaitGroup
	for i := range 600 {
		c, key := replicas[i%3], fmt.Sprint("chat ", i/6)
		ticket := reserve(t, c, key)
		wg.Go(func() {
			turn, err := c.AcquireTurn(soon(t), ticket)
			if err != nil {
				t.Error(err)
				return
			}
			if err := turn.Release(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.noTickets()
	// A nudge that is still on its way finds its ticket gone and is not put.
	require.Eventually(t, func() bool { return len(b.keys("v1/inbox/")) == 0 }, patience, 10*time.Millisecond)
}

func TestEndOfATurnIsNotToldBeforeItsBeginning(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	var mu sync.Mutex
	held, wrong := 0, 0
	count := func(d int) {
		mu.Lock()
		defer mu.Unlock()
		if held += d; held < 0 {
			wrong++
		}
	}
	c := b.replica("a", func(cfg *etcdcoord.Config) {
		cfg.MaxHold = time.Nanosecond
		cfg.Hooks.TurnGranted = func(string, time.Duration) { count(1) }
		cfg.Hooks.TurnLost = func(string, etcdcoord.LostReason) { count(-1) }
		cfg.Hooks.TurnReleased = func(string, time.Duration) { count(-1) }
	})
	for range 100 {
		release(t, take(t, c, "chat"))
	}
	mu.Lock()
	defer mu.Unlock()
	require.Zero(t, wrong)
	require.Zero(t, held)
}
