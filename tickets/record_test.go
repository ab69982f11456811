package tickets_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/tickets"
)

// Replicas of different versions read each other's keys: this is a wire format.
func TestNamesAndValuesInEtcdAreAWireFormat(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	const odd = "chat 1/é"
	turns := env.prefix + "v1/turns/chat%201%2F%C3%A9/"
	leaseA, leaseB := int64(a.session.Lease()), int64(b.session.Lease())
	before := time.Now()
	first := a.reserve(t, odd, tickets.WithNote(`"from" webhook`))
	second := b.reserve(t, odd)
	require.Equal(t, []string{
		fmt.Sprintf("%stickets/%x-0", turns, leaseA), fmt.Sprintf("%stickets/%x-0", turns, leaseB),
	}, env.tickets(odd))

	kvs := env.kvs(turns + "tickets/").Kvs
	var value struct {
		ReservedAt time.Time `json:"reserved_at"`
	}
	require.NoError(t, json.Unmarshal(kvs[0].Value, &value))
	require.WithinRange(t, value.ReservedAt, before.Add(-time.Millisecond), time.Now())
	at := value.ReservedAt.UTC().Format(time.RFC3339Nano)
	require.Equal(t, `{"replica":"a","incarnation":"a-1","note":"\"from\" webhook","reserved_at":"`+at+`"}`, string(kvs[0].Value))
	require.NotContains(t, string(kvs[1].Value), "note")
	require.Equal(t, leaseA, kvs[0].Lease)
	require.EqualValues(t, first.Fence(), kvs[0].CreateRevision)

	// Granted by the transaction that made it: the record's revision is the fence.
	holder := env.kvs(turns + "holder").Kvs[0]
	require.Equal(t, `{"replica":"a","incarnation":"a-1"}`, string(holder.Value))
	require.EqualValues(t, first.Fence(), holder.ModRevision)

	waiting := acquiring(within(t, patience), second)
	release(t, acquire(t, first))
	turn := won(t, waiting)
	require.Equal(t, `{"replica":"b","incarnation":"b-1","fence":`+itoa(turn.Fence())+`}`, string(env.kvs(turns + "holder").Kvs[0].Value))

	// The nudge that told b hangs on b's lease, and goes with its ticket.
	inbox := fmt.Sprintf("%sv1/inbox/%x/0-chat%%201%%2F%%C3%%A9", env.prefix, leaseB)
	nudge := env.kvs(inbox).Kvs
	require.Len(t, nudge, 1)
	require.Equal(t, leaseB, nudge[0].Lease)
	require.Empty(t, nudge[0].Value)
	release(t, turn)
	require.Empty(t, env.kvs(inbox).Kvs)
}

func TestAGuardHoldsWhileTheTicketIsInEtcd(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	turn := a.take(t, key)
	write := func() bool {
		answer, err := env.client.Txn(within(t, patience)).If(turn.Guard()).Then(clientv3.OpPut(env.prefix+"data", "x")).Commit()
		require.NoError(t, err)
		return answer.Succeeded
	}
	require.True(t, write())
	release(t, turn)
	again := a.take(t, key) // in the same slot
	require.False(t, write())
	release(t, again)
}

// What nobody of ours wrote is unknown, and the queue goes on.
func TestARecordOfStrangersIsUnknown(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "null", "[]", "not JSON", `{"replica":""}`, `{"replica":5}`, "\xff"} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			env, a, _ := two(t)
			env.put(env.schema.Holder(key), value, clientv3.NoLease)
			turn := a.take(t, key)
			require.Empty(t, previous(turn))
			require.False(t, turn.Warm())
			release(t, turn)
			require.Equal(t, "a", previous(a.take(t, key)), "it was replaced")
		})
	}
}

// B5: the previous holder is told; Warm is only for the very process that held before.
func TestPreviousHolderAndWarm(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	told := func(turn *tickets.Turn) string {
		defer release(t, turn)
		return fmt.Sprint(previous(turn), " ", turn.Warm())
	}
	require.Equal(t, " false", told(a.take(t, key)), "nobody was before")
	require.Equal(t, "a true", told(a.take(t, key)))
	require.Equal(t, "a false", told(b.take(t, key)))
	require.Equal(t, "b false", told(a.take(t, key)))
	require.Equal(t, " false", told(a.take(t, "another key")))

	// The next epoch of the same process remembers, a restarted process with the same id does not.
	require.NoError(t, a.stop(within(t, patience)))
	next := env.join("a", processOf(a))
	require.Equal(t, "a true", told(next.take(t, key)))
	require.NoError(t, next.stop(within(t, patience)))
	restarted := env.join("a", func(s *settings) { s.incarnation = "a-2" })
	require.Equal(t, "a false", told(restarted.take(t, key)))
	require.Equal(t, "a true", told(restarted.take(t, key)))
}

// One that only waited, or gave its grant up unused, was never the holder.
func TestWhoeverGaveUpWasNotThePreviousHolder(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	turn := a.take(t, key)
	waiter := b.reserve(t, key)
	c := env.join("c")
	waiting := acquiring(within(t, patience), c.reserve(t, key))
	require.NoError(t, waiter.Cancel(within(t, patience)))
	release(t, turn)
	mine := won(t, waiting)
	require.Equal(t, "a", previous(mine))
	release(t, mine)
	require.NoError(t, b.reserve(t, key).Cancel(within(t, patience)), "granted, and unused")
	require.Equal(t, "c", previous(a.take(t, key)))
}
