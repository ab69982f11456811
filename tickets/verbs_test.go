package tickets_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/keys"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// bench is several replicas under one prefix, each behind a tap of its own, and a look at etcd past
// all of them.
type bench struct {
	t      *testing.T
	client *clientv3.Client
	prefix string
	schema keys.Schema
}

func newBench(t *testing.T) *bench {
	prefix := testetcd.Prefix(t)
	return &bench{t, testetcd.Shared(t).Client(t), prefix, keys.New(prefix)}
}

func (b *bench) join(id string, opts ...option) *replica {
	b.t.Helper()
	return join(b.t, &tap{base: b.client}, b.prefix, id, opts...)
}

// two replicas, the usual cast.
func two(t *testing.T, opts ...option) (env *bench, a, b *replica) {
	t.Helper()
	env = newBench(t)
	return env, env.join("a", opts...), env.join("b", opts...)
}

func (r *replica) reserve(t *testing.T, key string, opts ...tickets.ReserveOption) *tickets.Ticket {
	t.Helper()
	ticket, err := r.Reserve(within(t, patience), key, opts...)
	require.NoError(t, err)
	return ticket
}

func acquire(t *testing.T, ticket *tickets.Ticket) *tickets.Turn {
	t.Helper()
	turn, err := ticket.Acquire(within(t, patience))
	require.NoError(t, err)
	return turn
}

func (r *replica) take(t *testing.T, key string) *tickets.Turn {
	t.Helper()
	return acquire(t, r.reserve(t, key))
}

func release(t *testing.T, turn *tickets.Turn) {
	t.Helper()
	require.NoError(t, turn.Release(within(t, patience)))
}

// outcome of an Acquire in the background.
type outcome struct {
	turn *tickets.Turn
	err  error
}

func acquiring(ctx context.Context, ticket *tickets.Ticket) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		turn, err := ticket.Acquire(ctx)
		done <- outcome{turn, err}
	}()
	return done
}

func got[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-within(t, patience).Done():
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func won(t *testing.T, from <-chan outcome) *tickets.Turn {
	t.Helper()
	o := got(t, from)
	require.NoError(t, o.err)
	return o.turn
}

// unavailable asserts the type of an error, and gives its reason.
func unavailable(t *testing.T, err error) fencing.UnavailableReason {
	t.Helper()
	var u *fencing.CoordinationUnavailableError
	require.ErrorAs(t, err, &u)
	require.ErrorIs(t, err, fencing.ErrUnavailable)
	return u.Reason
}

// lost asserts that err is a *LeaseLostError with that reason.
func lost(t *testing.T, err error, reason fencing.LostReason) {
	t.Helper()
	var e *fencing.LeaseLostError
	require.ErrorAs(t, err, &e)
	require.Equal(t, reason, e.Reason)
}

// previous is what a turn says of the one before: "" is unknown.
func previous(turn *tickets.Turn) string {
	id, known := turn.PreviousHolder()
	if !known {
		return ""
	}
	return id
}

// kvs are all keys under a prefix, oldest first.
func (b *bench) kvs(prefix string) *clientv3.GetResponse {
	b.t.Helper()
	answer, err := b.client.Get(within(b.t, patience), prefix, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(b.t, err)
	return answer
}

// tickets are the names of key's tickets in etcd, oldest first.
func (b *bench) tickets(key string) []string {
	b.t.Helper()
	names := []string{}
	for _, kv := range b.kvs(b.schema.Tickets(key)).Kvs {
		names = append(names, string(kv.Key))
	}
	return names
}

// empty waits until key has no tickets.
func (b *bench) empty(key string) {
	b.t.Helper()
	eventually(b.t, "tickets stay in etcd", func() bool { return len(b.tickets(key)) == 0 })
}

// idle waits until the replica has nothing in any queue and nothing to clean up.
func (r *replica) idle(t *testing.T) {
	t.Helper()
	eventually(t, "something is left to do", func() bool { return r.Counts() == tickets.Counts{} })
}

// bumps is how often the registration was put again to settle something.
func (b *bench) bumps(id string) int64 {
	b.t.Helper()
	kvs := b.kvs(b.schema.Replica(id)).Kvs
	require.Len(b.t, kvs, 1)
	return kvs[0].Version - 1
}

func (b *bench) put(key, value string, lease clientv3.LeaseID) {
	b.t.Helper()
	_, err := b.client.Put(within(b.t, patience), key, value, clientv3.WithLease(lease))
	require.NoError(b.t, err)
}

func (b *bench) delete(key string) {
	b.t.Helper()
	answer, err := b.client.Delete(within(b.t, patience), key)
	require.NoError(b.t, err)
	require.EqualValues(b.t, 1, answer.Deleted, key)
}

// record is what stands in etcd about the last holder of key; "" is nothing.
func (b *bench) record(key string) string {
	b.t.Helper()
	kvs := b.kvs(b.schema.Holder(key)).Kvs
	if len(kvs) == 0 {
		return ""
	}
	return string(kvs[0].Value)
}

func itoa(fence fencing.Token) string { return strconv.FormatInt(int64(fence), 10) }

// names says whether key's record names the replica.
func (b *bench) names(key, id string) bool {
	b.t.Helper()
	return strings.Contains(b.record(key), `"replica":"`+id+`"`)
}
