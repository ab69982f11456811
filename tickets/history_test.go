package tickets_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/tickets"
)

func newHistory(t *testing.T, ttl time.Duration) (*tickets.History, *tap) {
	tp := &tap{base: testetcd.Shared(t).Client(t)}
	return tickets.NewHistory(tp.client(), ttl, 5*time.Second), tp
}

func leaseFor(t *testing.T, h *tickets.History, key string) clientv3.LeaseID {
	t.Helper()
	id, err := h.LeaseFor(within(t, patience), key)
	require.NoError(t, err)
	return id
}

// etcd deletes all keys of a lease in one step when it expires: a million would stall it.
func TestAHistoryLeaseHasAThousandRecordsAtMost(t *testing.T) {
	t.Parallel()
	h, tp := newHistory(t, time.Hour)
	perLease := make(map[clientv3.LeaseID]int)
	for range 2 { // a key that has its record there already does not count again
		for i := range tickets.RecordsPerLease {
			perLease[leaseFor(t, h, fmt.Sprint(i))]++
		}
	}
	require.Len(t, perLease, 1)
	require.Equal(t, 1, tp.count("history lease"))
	more := leaseFor(t, h, "one more")
	require.NotContains(t, perLease, more)
	require.Equal(t, more, leaseFor(t, h, "0"), "the record moves to the new lease")
	require.Equal(t, 2, tp.count("history lease"))
}

// A lease is used for a 24th of HistoryTTL, and lives so long that a record put at the end of that
// time still lives for HistoryTTL.
func TestAHistoryLeaseIsRotatedAndNeverRenewed(t *testing.T) {
	t.Parallel()
	h, tp := newHistory(t, 2400*time.Millisecond)
	first := leaseFor(t, h, key)
	granted, err := tp.base.TimeToLive(within(t, patience), first)
	require.NoError(t, err)
	require.EqualValues(t, 3, granted.GrantedTTL)
	eventually(t, "it is never rotated", func() bool { return leaseFor(t, h, key) != first })
	eventually(t, "it is renewed", func() bool {
		answer, err := tp.base.TimeToLive(within(t, patience), first)
		return err == nil && answer.TTL < 0
	})
}

func TestConcurrentReservesShareOneHistoryLease(t *testing.T) {
	t.Parallel()
	h, tp := newHistory(t, time.Hour)
	slow := make(chan struct{})
	asked := tp.first("history lease", fault{hold: slow})
	var group errgroup.Group
	for i := range 20 {
		group.Go(func() error {
			_, err := h.LeaseFor(within(t, patience), fmt.Sprint(i))
			return err
		})
	}
	asked.happened(t)
	close(slow)
	require.NoError(t, group.Wait())
	require.Equal(t, 1, tp.count("history lease"))
}

// Whoever waits for somebody else's request to etcd still obeys its own context.
func TestWaitingForAHistoryLeaseEndsWithTheContext(t *testing.T) {
	t.Parallel()
	_, a, _ := two(t)
	slow := make(chan struct{})
	asked := a.tap.first("history lease", fault{hold: slow})
	first := make(chan error, 1)
	go func() {
		_, err := a.Reserve(within(t, patience), key)
		first <- err
	}()
	asked.happened(t)
	_, err := a.Reserve(within(t, 20*time.Millisecond), "another key")
	unavailable(t, err)
	require.Equal(t, tickets.Counts{}, a.Counts(), "no slot was taken")
	close(slow)
	require.NoError(t, got(t, first))
}

func TestForgettingAKeyOnlyMakesItCold(t *testing.T) {
	t.Parallel()
	h, _ := newHistory(t, time.Hour)
	h.Remember(key, 7)
	require.True(t, h.HeldLast(key, 7))
	require.False(t, h.HeldLast(key, 6))
	require.False(t, h.HeldLast("never held", 0))
	for i := range 2 * tickets.MostRemembered {
		h.Remember(fmt.Sprint(i), 1)
	}
	require.Equal(t, tickets.MostRemembered, h.Remembered())
	h.Remember(key, 8)
	require.True(t, h.HeldLast(key, 8))
	require.False(t, h.HeldLast(key, 7))
	require.Equal(t, tickets.MostRemembered, h.Remembered())
}

// Callers who do not wait for the grant must not each leave a lease behind that nobody knows.
func TestImpatientReservesAskForOneHistoryLease(t *testing.T) {
	t.Parallel()
	_, a, _ := two(t)
	asked := make(chan struct{})
	slow := a.tap.first("history lease", fault{hold: asked})
	for range 5 {
		_, err := a.Reserve(within(t, 20*time.Millisecond), key)
		require.Equal(t, fencing.Timeout, unavailable(t, err))
	}
	require.NotEmpty(t, slow.happened(t))
	close(asked)
	release(t, a.take(t, key))
	require.Equal(t, 1, a.tap.count("history lease"))
}

// The lease of the records was revoked by hand, or etcd was set back: another one is taken.
func TestARevokedHistoryLeaseIsReplaced(t *testing.T) {
	t.Parallel()
	revoke := func(env *bench, key string) {
		lease := env.kvs(env.schema.Holder(key)).Kvs[0].Lease
		_, err := env.client.Revoke(within(env.t, patience), clientv3.LeaseID(lease))
		require.NoError(env.t, err)
	}
	t.Run("by Reserve", func(t *testing.T) {
		t.Parallel()
		env, a, _ := two(t)
		release(t, a.take(t, key))
		revoke(env, key)
		turn := a.take(t, key)
		require.Empty(t, previous(turn))
		require.True(t, env.names(key, "a"))
		release(t, turn)
	})
	t.Run("by Grant", func(t *testing.T) {
		t.Parallel()
		env, a, b := two(t)
		release(t, a.take(t, "another key"))
		turn, waiting := behind(t, a, b)
		revoke(env, "another key")
		release(t, turn)
		require.Equal(t, "b", previous(won(t, waiting)))
	})
	t.Run("by leaving unused", func(t *testing.T) {
		t.Parallel()
		env, a, b := two(t, historyTTL(72*time.Second)) // a new lease every three seconds
		first := b.take(t, key)
		release(t, first)
		ticket := a.reserve(t, key) // its record names a, on one lease
		lease := env.kvs(env.schema.Holder(key)).Kvs[0].Lease
		eventually(t, "no other lease", func() bool {
			release(t, a.take(t, "another key"))
			return env.kvs(env.schema.Holder("another key")).Kvs[0].Lease != lease
		})
		revoke(env, "another key") // the record that names b again would hang on this one
		before := a.tap.count("leave")
		require.NoError(t, ticket.Cancel(within(t, patience)))
		require.Equal(t, 2, a.tap.count("leave")-before)
		require.Empty(t, env.tickets(key))
		require.Contains(t, env.record(key), itoa(first.Fence()))
	})
}

// A held key is not idle: its record lives on.
func TestALongTurnRenewsItsRecord(t *testing.T) {
	t.Parallel()
	env, a, b := two(t, historyTTL(2*time.Second))
	turn := a.take(t, key)
	lease := env.kvs(env.schema.Holder(key)).Kvs[0].Lease
	eventually(t, "the record expires", func() bool { return env.record(key) == "" })
	release(t, turn)
	require.Equal(t, `{"replica":"a","incarnation":"a-1","fence":`+itoa(turn.Fence())+`}`, env.record(key))
	require.NotEqual(t, lease, env.kvs(env.schema.Holder(key)).Kvs[0].Lease)
	next := b.take(t, key)
	require.Equal(t, "a", previous(next))
	release(t, next)
	eventually(t, "the record of an idle key stays", func() bool { return env.record(key) == "" })
	require.Empty(t, previous(b.take(t, key)))
}
