package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// machine tells how slow everything was: it writes to etcd, one write after the other, so that a
// test can tell something that was missed from a machine that stood still.
type machine struct {
	mu    sync.Mutex // guards the field below
	slow  []write    // all that took longer than a few milliseconds
	since time.Time  // when the write under way began
}

type write struct{ begun, ended time.Time }

func watchMachine(t testing.TB, client *clientv3.Client) *machine {
	m := &machine{}
	ctx, quit := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		quit()
		<-done
	})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			m.write(ctx, client)
		}
	}()
	return m
}

func (m *machine) write(ctx context.Context, client *clientv3.Client) {
	begun := time.Now()
	m.mu.Lock()
	m.since = begun
	m.mu.Unlock()
	_, _ = client.Put(ctx, "machine", "") // also its failure takes time
	select {
	case <-time.After(2 * time.Millisecond): // so that watching does not load the machine itself
	case <-ctx.Done():
	}
	ended := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if ended.Sub(begun) > 10*time.Millisecond {
		m.slow = append(m.slow, write{begun, ended})
	}
}

// worst is the longest write that was under way after since.
func (m *machine) worst(since time.Time) (longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.slow {
		if w.ended.After(since) {
			longest = max(longest, w.ended.Sub(w.begun))
		}
	}
	return max(longest, time.Since(m.since))
}

// missed is late for something that should come at once. What the queue misses is found by its
// audit, up to a second later.
func (m *machine) missed(begun time.Time, took time.Duration) string {
	return m.late(begun, took, 300*time.Millisecond)
}

// late says what is wrong with something that took this long since begun; "" if it kept the limit,
// or could not because all of etcd stood still meanwhile: whatever is measured here takes several
// steps, one after the other, each of which may take as long as a write does.
func (m *machine) late(begun time.Time, took, limit time.Duration) string {
	stall := m.worst(begun)
	if took < limit || stall > took/8 {
		return ""
	}
	return fmt.Sprintf("took %v, more than %v, while etcd took up to %v", took, limit, stall)
}

// withTTL plays a scenario with short sessions. On a machine that stands still for a second those
// end rightly; the scenario then says that it was disturbed, and is played again with longer ones.
func withTTL(t *testing.T, scenario func(b *bot, ttl time.Duration) (disturbed bool)) {
	for d := 2 * time.Second; ; d *= 2 {
		b := newBotOn(t, testetcd.New(t, testetcd.FastTicks))
		if !scenario(b, d) {
			return
		}
		require.Less(t, d, 8*time.Second, "sessions of any length were lost")
		t.Logf("a session of %v was lost, once more with longer ones", d)
	}
}

// shortLived is a replica with a session of d that is renewed often.
func (b *bot) shortLived(id string, d time.Duration, opts ...option) *etcdcoord.Coordinator {
	b.t.Helper()
	c := b.unstarted(b.etcd.Client(b.t), id, append(opts, ttl(d), renewEvery(d/10))...)
	b.t.Cleanup(func() { stop(b.t, c) })
	require.Eventually(b.t, func() bool { return c.Start(soon(b.t)) == nil }, patience, time.Millisecond,
		"on a machine that stands still the session may end even while it starts, but not for ever")
	return c
}

func anyLost(replicas ...*etcdcoord.Coordinator) bool {
	for _, c := range replicas {
		if c.Stats().SessionsLost > 0 {
			return true
		}
	}
	return false
}

// aim finds the moment at which two things collide, on a fast machine and on a slow one: after a try
// that came too early it waits longer, after one that came too late shorter.
type aim struct{ pause time.Duration }

// wait sleeps for something around that moment. It is no wait for anything.
func (a *aim) wait() { time.Sleep(a.pause/2 + rand.N(a.pause+1)) }

func (a *aim) adjust(tooEarly bool) {
	if tooEarly {
		a.pause = a.pause*3/2 + 100*time.Microsecond
	} else {
		a.pause = a.pause * 2 / 3
	}
}
