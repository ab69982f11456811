package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// chatState is what a handler reads, changes and writes back without any lock of its own. Two
// handlers at a time lose an update.
type chatState struct {
	counter atomic.Int64 // atomic, so that the race is the handler's and not the detector's
	seen    []int        // messages in the order of their handling; guarded by the chat's turn alone
}

func (s *chatState) handle(message int) {
	counter := s.counter.Load()
	s.seen = append(s.seen, message)
	time.Sleep(20*time.Millisecond + rand.N(60*time.Millisecond)) // the work between read and write
	s.counter.Store(counter + 1)
}

// B1, PraisonAI#3643 and stella#643.
func TestChatsAreHandledInOrderWithoutOverlapAndBesideEachOther(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	replicas := []*etcdcoord.Coordinator{b.replica("a"), b.replica("b"), b.replica("c")}
	const chats, messages = 20, 50
	states := make([]chatState, chats)
	var running, most, handled atomic.Int64
	var wg sync.WaitGroup
	for chat := range chats {
		wg.Go(func() { // the chat's messages come in one after the other, at whatever replica
			for message := range messages {
				c := replicas[(chat+message)%len(replicas)]
				ticket, err := c.Reserve(soon(t), fmt.Sprint("chat ", chat))
				if err != nil {
					t.Error(err)
					return
				}
				wg.Go(func() {
					turn, err := c.AcquireTurn(soon(t), ticket)
					if err != nil {
						t.Error(err)
						return
					}
					now := running.Add(1)
					for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
					}
					states[chat].handle(message)
					running.Add(-1)
					handled.Add(1)
					if err := turn.Release(context.Background()); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
	wg.Wait()
	for chat := range states {
		require.EqualValues(t, messages, states[chat].counter.Load(), "chat %d lost an update", chat)
		require.Equal(t, upTo(messages), states[chat].seen, "chat %d", chat)
	}
	require.EqualValues(t, chats*messages, handled.Load())
	require.Greater(t, most.Load(), int64(3), "chats do not wait for each other")
	b.noTickets()
	for _, c := range replicas {
		s := c.Stats()
		require.Zero(t, s.TurnsHeld+s.TicketsWaiting+s.Reserving+s.Leaving+s.Ghosts, "%+v", s)
		require.Equal(t, s.TurnsGranted, s.TurnsReleased)
		require.Zero(t, s.TurnsLost)
	}
}

// B2, vercel/chat#685: a handler that takes longer than the TTL.
func TestHandlerThatTakesLongerThanTheTTLKeepsItsTurn(t *testing.T) {
	t.Parallel()
	withTTL(t, func(b *bot, d time.Duration) (disturbed bool) {
		history := func(cfg *etcdcoord.Config) { cfg.HistoryTTL = time.Hour }
		a, c := b.shortLived("a", d, history), b.shortLived("c", d, history)
		turn, others, ticket := take(t, a, "chat"), take(t, a, "another chat"), reserve(t, c, "chat")
		waiting := acquiring(soon(t), c, ticket)
		select {
		case o := <-waiting:
			require.True(t, anyLost(a, c), "granted while the handler runs: %v", o)
		case <-turn.Context().Done():
			require.True(t, anyLost(a), "aborted: %v", context.Cause(turn.Context()))
		case <-time.After(6 * d):
		}
		if anyLost(a, c) {
			return true
		}
		require.NoError(t, turn.AssertHeld())
		b.leasesAre(
			expect{clientv3.LeaseID(a.Stats().LeaseID), "the session of a"}, expect{clientv3.LeaseID(c.Stats().LeaseID), "the session of c"},
			expect{0, "history of a"}, expect{0, "history of c"},
		)
		release(t, turn)
		o := got(t, waiting)
		if anyLost(a, c) {
			return true
		}
		require.NoError(t, o.err)
		require.Equal(t, ticket.Fence(), o.turn.Fence())
		names(t, o.turn, "a", false)
		release(t, o.turn)
		release(t, others)
		return false
	})
}

// expect is a lease that should exist; 0 for one whose id is not known.
type expect struct {
	id   clientv3.LeaseID
	what string
}

// leasesAre asserts which leases exist in an etcd that nobody else uses.
func (b *bot) leasesAre(expected ...expect) {
	b.t.Helper()
	answer, err := b.plain.Leases(soon(b.t))
	require.NoError(b.t, err)
	var ids []clientv3.LeaseID
	for _, lease := range answer.Leases {
		ids = append(ids, lease.ID)
	}
	require.Len(b.t, ids, len(expected), "expected are %v", expected)
	for _, e := range expected {
		require.True(b.t, e.id == 0 || slices.Contains(ids, e.id), "%s, %x, is not among %x", e.what, e.id, ids)
	}
}
