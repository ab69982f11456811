package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// F31, website#710: names that are prefixes, parts or look-alikes of each other.
var oddNames = []string{
	"room", "room/", "room/1", "room/1/", "room/1/x", "roo", "ROOM", "a//b", "a/b", "/", "//", ".", "..", "../room",
	" ", "  ", "room 1", "room\t1", "room\n", "room%2F1", "room%2f1", "%", "%%", "%2", "tickets", "room/tickets/", "room/tickets/1-0",
	"holder", "v1/turns/room", "👋🏽 чат 聊天", "e\u0301", "\u00e9", "\u202eroom", "\x01\x7f", `"quoted" \n`, "-100123:45@bot",
	strings.Repeat("x", 512), strings.Repeat("x", 511), strings.Repeat("/", 512), strings.Repeat("€", 170) + "xy", // 512 bytes
}

func TestOddKeysDoNotWaitForEachOtherAndComeBackExactly(t *testing.T) {
	t.Parallel()
	backwards := slices.Clone(oddNames)
	slices.Reverse(backwards)
	for order, oddNames := range map[string][]string{"forwards": oddNames, "backwards": backwards} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			holdAll(t, oddNames)
		})
	}
}

// holdAll holds all keys at once, each with a waiter behind it.
func holdAll(t *testing.T, oddNames []string) {
	b := newBot(t)
	a, c := b.replica("a"), b.replica("c")
	events := make(chan etcdcoord.TurnLost, len(oddNames))
	etcdcoord.On(a, func(e etcdcoord.TurnLost) { events <- e })

	turns := make(map[etcdcoord.Token]string)
	waiting := make(map[string]<-chan outcome)
	for _, name := range oddNames {
		ticket := reserve(t, a, name)
		require.Equal(t, name, ticket.Key())
		turn := acquire(t, a, ticket)
		require.Equal(t, name, turn.Key())
		_, known := turn.PreviousHolder()
		require.False(t, known, "%q has no record of another key", name)
		require.NotContains(t, turns, turn.Fence())
		turns[turn.Fence()] = name
		waiting[name] = acquiring(soon(t), c, reserve(t, c, name))
	}
	require.Equal(t, len(oddNames), a.Stats().TurnsHeld)
	require.Equal(t, len(oddNames), c.Stats().TicketsWaiting)

	require.NoError(t, a.Stop(soon(t)))
	for range oddNames {
		e := got(t, events)
		require.Equal(t, turns[e.Fence], e.Key)
		require.Equal(t, e.Key, lost(t, e.Err, etcdcoord.Stopped).Key)
	}
	for name, next := range waiting {
		o := got(t, next)
		require.NoError(t, o.err, "%q", name)
		require.Equal(t, name, o.turn.Key())
		names(t, o.turn, "a", false)
		release(t, o.turn)
	}
	b.noTickets()
}

func TestOddReplicaIDsElectionsLeaseKeysAndOwnersComeBackExactly(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	listener := b.replica("listener")
	joined := make(chan etcdcoord.ReplicaJoined, len(oddNames))
	etcdcoord.On(listener, func(e etcdcoord.ReplicaJoined) { joined <- e })
	client := b.etcd.Client(t)
	var before string
	for i := 0; i < len(oddNames); i += 3 { // every third: starting takes time, and the escaping is the same
		name := oddNames[i]
		c := b.replicaOn(client, name)
		require.Equal(t, name, c.ReplicaID())
		require.Equal(t, name, got(t, joined).Replica)
		turn := take(t, c, "chat")
		if i > 0 {
			names(t, turn, before, false)
		}
		before = name
		release(t, turn)

		leadership, err := c.TryLead(soon(t), name)
		require.NoError(t, err, "%q", name)
		require.Equal(t, name, leadership.Name())
		grant, err := c.Leases().Acquire(soon(t), name, name, time.Minute)
		require.NoError(t, err, "%q", name)
		require.Equal(t, name, grant.Key)
		require.Equal(t, name, grant.Owner)
		require.NoError(t, c.Leases().Release(soon(t), name, name, grant.Token))
	}
}

// Prefixes inside, beside and like each other.
func TestBotsWithNestedPrefixesNeverTouchEachOther(t *testing.T) {
	t.Parallel()
	root := newBot(t)
	prefixes := []string{"p/", "p/q/", "pp", "p/v1", "p/v1/turns", "p/v1/turns/chat", "p/v1/replicas", "P", "p%2F", "p/ /"}
	type resident struct {
		bot  *bot
		a, c *etcdcoord.Coordinator
		turn *etcdcoord.Turn
		next <-chan outcome
		lead *etcdcoord.Leadership
	}
	var all []*resident
	for _, prefix := range prefixes {
		r := &resident{bot: &bot{t: t, etcd: root.etcd, plain: root.plain, prefix: root.prefix + prefix}}
		client := root.etcd.Client(t)
		joined := make(chan etcdcoord.ReplicaJoined, 100)
		r.a = r.bot.replicaOn(client, "a")
		etcdcoord.On(r.a, func(e etcdcoord.ReplicaJoined) { joined <- e })
		r.c = r.bot.replicaOn(client, "c")
		require.Equal(t, "c", got(t, joined).Replica)
		r.turn = take(t, r.a, "chat") // at once, whoever holds "chat" elsewhere
		names(t, r.turn, nobody, false)
		r.next = acquiring(soon(t), r.c, reserve(t, r.c, "chat"))
		var err error
		r.lead, err = r.a.TryLead(soon(t), "role")
		require.NoError(t, err)
		all = append(all, r)
	}
	snapshot := func() map[string]string {
		answer, err := root.plain.Get(soon(t), root.prefix, clientv3.WithPrefix())
		require.NoError(t, err)
		found := make(map[string]string)
		for _, kv := range answer.Kvs {
			found[string(kv.Key)] = fmt.Sprint(kv.CreateRevision, " ", kv.ModRevision)
		}
		return found
	}
	for i, r := range all {
		before := snapshot()
		require.NoError(t, r.a.Stop(soon(t)))
		o := got(t, r.next)
		require.NoError(t, o.err)
		release(t, o.turn)
		require.NoError(t, r.c.Stop(soon(t)))
		after := snapshot()
		schema := strings.TrimSuffix(r.bot.prefix, "/") + "/v1/"
		for name, revisions := range before {
			if own := strings.HasPrefix(name, schema) && !inside(name, schema, prefixes, root.prefix); !own {
				require.Equal(t, revisions, after[name], "%s was touched by the bot under %q", name, prefixes[i])
			}
		}
		for _, other := range all[i+1:] {
			require.NoError(t, other.turn.AssertHeld())
			require.NoError(t, other.lead.AssertHeld())
		}
	}
	for name := range snapshot() {
		require.True(t, isHolder(name), name)
	}
}

// inside says whether name is of a bot whose prefix is deeper inside schema.
func inside(name, schema string, prefixes []string, root string) bool {
	for _, prefix := range prefixes {
		other := strings.TrimSuffix(root+prefix, "/") + "/v1/"
		if len(other) > len(schema) && strings.HasPrefix(other, schema) && strings.HasPrefix(name, other) {
			return true
		}
	}
	return false
}
