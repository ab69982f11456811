package integration_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// logbook keeps what a replica logs at Warn and above.
type logbook struct {
	mu  sync.Mutex // guards the field below
	log bytes.Buffer
}

func (l *logbook) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(line)
}

// about are the lines that name what.
func (l *logbook) about(what string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.log.String()) {
		if strings.Contains(line, what) {
			lines = append(lines, line)
		}
	}
	return lines
}

func (l *logbook) option(cfg *etcdcoord.Config) {
	cfg.Logger = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// put writes a key under the prefix, on a lease if that is not 0.
func (b *bot) put(name, value string, lease clientv3.LeaseID) {
	b.t.Helper()
	_, err := b.plain.Put(soon(b.t), b.prefix+name, value, clientv3.WithLease(lease))
	require.NoError(b.t, err)
}

func (b *bot) grant() clientv3.LeaseID {
	b.t.Helper()
	answer, err := b.plain.Grant(soon(b.t), 600)
	require.NoError(b.t, err)
	return answer.ID
}

// In a queue there can be keys that nobody of ours wrote: without a lease, or with a name that no
// ticket has. Left alone they would be head for ever.
func TestStrayKeysInAQueueAreRemovedAndTheQueueMovesOn(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	lease := b.grant()
	strays := map[string]clientv3.LeaseID{
		"tickets/abc-0":     0, // a ticket's name, and no lease: its replica can never die
		"tickets/abc_0":     lease,
		"tickets/":          lease,
		"tickets/ABC-0":     lease, // not what we would have written
		"tickets/abc-0/x":   lease,
		"tickets/abc-00":    lease,
		"tickets/-1-0":      lease,
		"tickets/abc-0-1":   lease,
		"tickets/tickets/0": 0,
	}
	t.Run("each", func(t *testing.T) {
		i := 0
		for name, lease := range strays {
			key := fmt.Sprintf("chat%d", i)
			i++
			t.Run(key, func(t *testing.T) {
				t.Parallel()
				b := &bot{t: t, etcd: b.etcd, plain: b.plain, prefix: b.prefix}
				b.movesOnPast("v1/turns/"+key+"/"+name, lease, key)
			})
		}
	})
	b.noTickets()
	lives, err := b.plain.TimeToLive(soon(t), lease)
	require.NoError(t, err)
	require.Positive(t, lives.TTL, "only the keys go, not somebody's lease")
}

func (b *bot) movesOnPast(stray string, lease clientv3.LeaseID, key string) {
	t, log := b.t, &logbook{}
	c := b.replicaOn(b.etcd.Client(t), "replica of "+key, log.option)
	b.put(stray, "garbage", lease)
	turn := take(t, c, key) // it was head
	require.NotContains(t, b.keys("v1/turns/"+key), stray)

	b.put(stray, "again", lease) // behind a turn, in front of a ticket
	behind := reserve(t, c, key)
	release(t, turn)
	turn = acquire(t, c, behind)
	require.NotContains(t, b.keys("v1/turns/"+key), stray)
	require.Len(t, log.about(stray), 1, "it is logged once")
	require.Contains(t, log.about(stray)[0], "level=WARN")
	release(t, turn)
}

func TestStrayKeysInTheInboxAreRemoved(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	log := &logbook{}
	c := b.replicaOn(b.etcd.Client(t), "a", log.option)
	other := b.replica("other")
	inbox := fmt.Sprintf("v1/inbox/%x/", c.Stats().LeaseID)
	lease := b.grant()
	strays := map[string]clientv3.LeaseID{
		inbox + "0-chat": 0, inbox + "garbage": lease, inbox: lease, inbox + "0-cha t": lease, inbox + "00-chat": lease, inbox + "0-chat/": 0,
	}
	for range 2 {
		for name, lease := range strays {
			b.put(name, "garbage", lease)
		}
		require.Eventually(t, func() bool { return len(b.keys(inbox)) == 0 }, patience, 5*time.Millisecond)
	}
	for name := range strays {
		require.Len(t, append(log.about(name+"\n"), log.about(name+"\"\n")...), 1, name) // perhaps quoted
	}
	// Of another replica's inbox nothing is touched, nor is a message of a live sender.
	foreign := fmt.Sprintf("v1/inbox/%x0/0-chat", c.Stats().LeaseID)
	b.put(foreign, "", 0)
	b.put(inbox+"5-chat", "", lease)
	turn := take(t, c, "chat")
	next := acquiring(soon(t), other, reserve(t, other, "chat"))
	release(t, turn)
	o := got(t, next)
	require.NoError(t, o.err)
	release(t, o.turn)
	require.Equal(t, []string{foreign}, b.keys(foreign))
	require.Equal(t, []string{inbox + "5-chat"}, b.keys(inbox))
}

// The watch on the inbox cannot go on where it was, because that is compacted.
func TestStrayKeysThatCameToTheInboxUnwatchedAreRemoved(t *testing.T) {
	t.Parallel()
	b := newBotOn(t, testetcd.New(t, testetcd.FastTicks))
	proxy := faultproxy.Before(t, b.etcd.Member(0).Endpoint())
	c := b.replicaOn(clientThrough(t, b.etcd, proxy), "a")
	inbox := fmt.Sprintf("v1/inbox/%x/", c.Stats().LeaseID)
	proxy.Down()
	b.put(inbox+"garbage", "", b.grant())
	b.put(inbox+"0-chat", "", 0)
	b.compact()
	proxy.Heal()
	require.Eventually(t, func() bool { return len(b.keys(inbox)) == 0 }, patience, 5*time.Millisecond)
	require.Zero(t, c.Stats().SessionsLost)
}

// A ticket that parses and has a live lease counts, whoever wrote it.
func TestForeignTicketWithALiveLeaseKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for name, ticketOf := range map[string]func(lease clientv3.LeaseID) string{
		"named after its lease":        func(lease clientv3.LeaseID) string { return fmt.Sprintf("%x-0", lease) },
		"named after some other lease": func(clientv3.LeaseID) string { return "abcdef-3" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBot(t)
			a, c := b.replica("a"), b.replica("c")
			first := take(t, a, "chat")
			second := reserve(t, a, "chat")
			release(t, first)
			first = acquire(t, a, second) // by a hand-over, not at once: leaving differs
			lease := b.grant()
			foreign := "v1/turns/chat/tickets/" + ticketOf(lease)
			b.put(foreign, "", lease)
			behind := acquiring(soon(t), c, reserve(t, c, "chat"))
			machine, begun := watchMachine(t, b.plain), time.Now()
			release(t, first)
			require.Empty(t, machine.late(begun, time.Since(begun), 2*time.Second))
			require.Equal(t, foreign, b.head("chat"))
			select {
			case o := <-behind:
				t.Fatalf("granted past a live ticket: %v", o)
			case <-time.After(1500 * time.Millisecond): // longer than the audit takes
			}
			_, err := b.plain.Revoke(soon(t), lease)
			require.NoError(t, err)
			o := got(t, behind)
			require.NoError(t, o.err)
			names(t, o.turn, "a", false)
			release(t, o.turn)
			b.noTickets()
		})
	}
}

// head is the ticket of key that is first in line.
func (b *bot) head(key string) string {
	b.t.Helper()
	answer, err := b.plain.Get(soon(b.t), b.prefix+"v1/turns/"+key+"/tickets/", clientv3.WithFirstCreate()...)
	require.NoError(b.t, err)
	require.Len(b.t, answer.Kvs, 1)
	return string(answer.Kvs[0].Key)[len(b.prefix):]
}

func TestHolderRecordThatCannotBeReadMeansUnknown(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	log := &logbook{}
	a := b.replicaOn(b.etcd.Client(t), "a", log.option)
	const record = "v1/turns/chat/holder"
	for _, garbage := range []string{
		"", "garbage", "null", "[]", "{}", `{"replica":7}`, `{"replica":""}`, `{"replica":"x","fence":"y"}`, "\xff\xfe", `{"replica":"x"`,
		strings.Repeat("[", 10_000),
	} {
		b.put(record, garbage, 0)
		takeAfter(t, a, nobody, false)

		b.put(record, garbage, 0)
		first := reserve(t, a, "chat")
		require.NoError(t, first.Cancel(soon(t))) // puts nothing back
		require.NotContains(t, b.keys(record), record)
		takeAfter(t, a, nobody, false)
		takeAfter(t, a, "a", true)
	}
	require.Len(t, log.about("chat/holder"), 1, "it is logged once")

	// Written while the turn is held: the holder does not mind.
	turn := take(t, a, "chat")
	b.put(record, "garbage", 0)
	waiting := acquiring(soon(t), a, reserve(t, a, "chat"))
	release(t, turn)
	o := got(t, waiting)
	require.NoError(t, o.err)
	names(t, o.turn, nobody, false)
	release(t, o.turn)

	// One that was written by a process that has less to say.
	b.put(record, `{"replica":"an older version"}`, 0)
	takeAfter(t, a, "an older version", false)
}
