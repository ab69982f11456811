package tickets_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/andresayac/botmesh-etcd/tickets"
)

// Every deleted name stays in etcd's index until compaction, so names are used again.
func TestTheSmallestFreeSlotIsUsed(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	all := make([]*tickets.Ticket, 20)
	var want []string
	for i := range all {
		all[i] = a.reserve(t, key)
		want = append(want, fmt.Sprintf("%x", i))
	}
	require.Equal(t, want, slots(env.tickets(key)))
	for _, i := range []int{17, 3, 9} {
		require.NoError(t, all[i].Cancel(within(t, patience)))
	}
	for range 4 {
		a.reserve(t, key)
	}
	require.Equal(t, []string{"3", "9", "11", "14"}, slots(env.tickets(key))[17:])
	release(t, acquire(t, all[0]))
	a.reserve(t, key)
	names := env.tickets(key)
	require.Equal(t, "0", slotOf(names[len(names)-1]), "the name of the finished turn")
}

func TestSlotsOfDifferentKeysHaveNothingToDoWithEachOther(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	for _, r := range []*replica{a, b} {
		for _, k := range []string{"room", "room/", "room/1", "ROOM"} {
			r.reserve(t, k)
		}
	}
	for _, k := range []string{"room", "room/", "room/1", "ROOM"} {
		require.Equal(t, []string{"0", "0"}, slots(env.tickets(k)), k)
	}
}

// Reserves of one key that run at the same time never share a slot, whatever their order at etcd.
func TestConcurrentReservesHaveSlotsOfTheirOwn(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	var group errgroup.Group
	for range 50 {
		group.Go(func() error {
			_, err := a.Reserve(within(t, patience), key)
			return err
		})
	}
	require.NoError(t, group.Wait())
	all := slots(env.tickets(key))
	slices.Sort(all)
	require.Len(t, slices.Compact(all), 50)
	require.Equal(t, tickets.Counts{Waiting: 50}, a.Counts())
}

// crowd lets n tickets of one key, of two replicas, through, and counts their requests.
func crowd(t *testing.T, n int) (requests int) {
	t.Helper()
	_, a, b := two(t)
	before := a.tap.count("") + b.tap.count("")
	all := make([]*tickets.Ticket, n)
	for i := range all {
		r := a
		if i%10 == 9 {
			r = b
		}
		all[i] = r.reserve(t, key)
	}
	for _, ticket := range all {
		release(t, acquire(t, ticket))
	}
	audits := a.tap.count("audit") + b.tap.count("audit")
	return a.tap.count("") + b.tap.count("") - before - audits
}

// A ticket costs the same, whether 50 or 200 wait in line.
func TestATicketCostsTheSameHoweverManyWait(t *testing.T) {
	t.Parallel()
	few, many := crowd(t, 50), crowd(t, 200)
	require.LessOrEqual(t, few, 50*4+10, "reserve, grant, guess, leave")
	require.LessOrEqual(t, many, 200*4+10)
}
