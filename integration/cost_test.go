package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"runtime/pprof"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// proposals are what etcd's members have agreed on so far, whether or not it changed a key.
func (b *bot) proposals() uint64 {
	b.t.Helper()
	status, err := b.plain.Status(soon(b.t), b.etcd.Member(0).Endpoint())
	require.NoError(b.t, err)
	return status.RaftAppliedIndex
}

func TestUncontendedTurnCostsTwoWritesToEtcd(t *testing.T) {
	t.Parallel()
	b := newBotOn(t, testetcd.New(t, testetcd.FastTicks)) // nobody else writes there
	c := b.replica("a", ttl(time.Minute))
	release(t, take(t, c, "chat")) // takes the history lease
	const turns = 50
	revisions, proposals := revision(t, b.plain), b.proposals()
	for i := range turns {
		release(t, take(t, c, "chat"))
		release(t, take(t, c, fmt.Sprint("chat ", i))) // a key's first turn costs no more
	}
	require.EqualValues(t, 2*2*turns, revision(t, b.plain)-revisions)
	require.EqualValues(t, 2*2*turns, b.proposals()-proposals, "no proposals beside the writes")

	// Waiting in between costs one grant, also for tickets of the same replica.
	first := take(t, c, "chat")
	revisions, proposals = revision(t, b.plain), b.proposals()
	for range turns {
		ticket := reserve(t, c, "chat")
		release(t, first)
		first = acquire(t, c, ticket)
	}
	require.EqualValues(t, 3*turns, revision(t, b.plain)-revisions)
	require.EqualValues(t, 3*turns, b.proposals()-proposals)
	release(t, first)
}

func TestHeldAndWaitingTurnsCostNoWritesWhileTheyLast(t *testing.T) {
	t.Parallel()
	b := newBotOn(t, testetcd.New(t, testetcd.FastTicks))
	a, c := b.replica("a", ttl(time.Minute), renewEvery(100*time.Millisecond)), b.replica("c", ttl(time.Minute), renewEvery(100*time.Millisecond))
	for i := range 20 {
		key := fmt.Sprint("chat ", i)
		take(t, a, key)
		acquiring(soon(t), c, reserve(t, c, key))
	}
	revisions, proposals, renewals := revision(t, b.plain), b.proposals(), c.Stats().Renewals
	require.Eventually(t, func() bool { return c.Stats().Renewals > renewals+10 }, patience, time.Millisecond)
	require.Equal(t, revisions, revision(t, b.plain))
	require.Equal(t, proposals, b.proposals(), "renewals and audits read, they do not write")
}

// F15: one lease per replica, whatever it holds. Records of idle keys share leases by the thousand.
// And no goroutine per turn or ticket.
func TestThousandsOfTurnsAndTicketsShareALeaseAndCostNoGoroutines(t *testing.T) {
	t.Parallel()
	b := newBotOn(t, testetcd.New(t, testetcd.FastTicks))
	const many = 2000
	labelled(t, func(running func() int) {
		a, c := b.replica("a", ttl(time.Minute)), b.replica("c", ttl(time.Minute))
		parallel(t, func(i int) error { // so that the janitors have had something to do
			return takeAndRelease(t, a, c, i)
		}, 100)
		idle := settled(t, running)
		turns := make([]*etcdcoord.Turn, many)
		parallel(t, func(i int) (err error) {
			turns[i], err = tryTake(t, a, fmt.Sprint("chat ", i))
			return err
		}, many)
		tickets := make([]*etcdcoord.Ticket, many)
		parallel(t, func(i int) (err error) {
			tickets[i], err = c.Reserve(context.Background(), fmt.Sprint("chat ", i))
			return err
		}, many)
		require.Equal(t, many, a.Stats().TurnsHeld)
		require.Equal(t, many, c.Stats().TicketsWaiting)
		settlesAt(t, running, idle+5)
		b.sessionLeases(a, c, 2*(many/1000+1))

		// The callers that wait have a goroutine each, and those are all.
		waiting := make([]<-chan outcome, many)
		for i := range many {
			waiting[i] = acquiring(context.Background(), c, tickets[i])
		}
		settlesAt(t, running, idle+many+5)

		require.NoError(t, a.Stop(soon(t))) // one revoke frees them all
		for i := range many {
			require.NoError(t, (<-waiting[i]).err)
		}
		settlesAt(t, running, idle+5)
		require.NoError(t, c.Stop(soon(t)))
	})
	b.noTickets()
}

func takeAndRelease(t testing.TB, a, c *etcdcoord.Coordinator, i int) error {
	key := fmt.Sprint("before ", i)
	for _, c := range []*etcdcoord.Coordinator{a, c} {
		turn, err := tryTake(t, c, key)
		if err != nil {
			return err
		}
		if err := turn.Release(soon(t)); err != nil {
			return err
		}
	}
	return nil
}

// parallel does do for all numbers below n, some at a time.
func parallel(t testing.TB, do func(i int) error, n int) {
	t.Helper()
	numbers := make(chan int)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for i := range numbers {
				if err := do(i); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// sessionLeases asserts that there is one lease of either session, and at most so many for records.
func (b *bot) sessionLeases(a, c *etcdcoord.Coordinator, records int) {
	b.t.Helper()
	answer, err := b.plain.Leases(soon(b.t))
	require.NoError(b.t, err)
	rest := 0
	for _, lease := range answer.Leases {
		if id := int64(lease.ID); id == a.Stats().LeaseID || id == c.Stats().LeaseID {
			continue
		}
		rest++
		held, err := b.plain.TimeToLive(soon(b.t), lease.ID, clientv3.WithAttachedKeys())
		require.NoError(b.t, err)
		require.LessOrEqual(b.t, len(held.Keys), 1000, "etcd deletes them in one step")
	}
	require.Equal(b.t, rest+2, len(answer.Leases))
	require.LessOrEqual(b.t, rest, records)
}

const goroutineLabel = "cost-test"

// labelled runs f with a label that every goroutine inherits which f starts, directly or not.
// running counts them, so the tests beside this one do not.
func labelled(t testing.TB, f func(running func() int)) {
	label := strconv.FormatInt(time.Now().UnixNano(), 36)
	records := regexp.MustCompile(`(?m)^(\d+) @.*\n# labels: \{"` + goroutineLabel + `":"` + label + `"\}$`)
	pprof.Do(context.Background(), pprof.Labels(goroutineLabel, label), func(context.Context) {
		f(func() (n int) {
			var profile bytes.Buffer
			require.NoError(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
			for _, m := range records.FindAllStringSubmatch(profile.String(), -1) {
				count, err := strconv.Atoi(m[1])
				require.NoError(t, err)
				n += count
			}
			return n
		})
	})
}

// settled gives the least that running counts for a while: jobs that end must have the time to.
func settled(t testing.TB, running func() int) (least int) {
	t.Helper()
	least = running()
	require.Positive(t, least)
	for range 5 {
		time.Sleep(20 * time.Millisecond)
		least = min(least, running())
	}
	return least
}

// settlesAt waits until running counts no more than limit.
func settlesAt(t testing.TB, running func() int, limit int) {
	t.Helper()
	require.Eventually(t, func() bool { return running() <= limit }, 10*time.Second, 50*time.Millisecond, "goroutines stay: more than %d", limit)
}
