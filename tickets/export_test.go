package tickets

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// LeaseFor is the lease on which key's record would be put now.
func (h *History) LeaseFor(ctx context.Context, key string) (clientv3.LeaseID, error) {
	return h.leaseFor(ctx, key, func(f func(context.Context)) bool {
		go f(context.Background())
		return true
	})
}

// Remember notes a turn that was really held, HeldLast asks for it, Remembered counts the keys.
func (h *History) Remember(key string, fence int64)      { h.remember(key, fence) }
func (h *History) HeldLast(key string, fence int64) bool { return h.heldLast(key, fence) }

// Remembered is of how many keys the last turn is known.
func (h *History) Remembered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held)
}

// The limits of a History.
const (
	RecordsPerLease = recordsPerLease
	MostRemembered  = remembered
)

// TimerRuns says whether MaxHold could still end the turn, and stops it.
func (t *Turn) TimerRuns() bool { return t.timer != nil && t.timer.Stop() }

// UseLine uses a line of n tickets as a queue does whose crowd grows: n come, then two more with
// every one that leaves, and in the end all leave.
func UseLine(n int) {
	l := &line{}
	fence := int64(0)
	come := func() {
		t := &Ticket{}
		l.open(t)
		fence++
		t.fence = fence
		l.queue(t)
	}
	for range n {
		come()
	}
	for range n {
		l.free(l.oldest())
		come()
		come()
	}
	for !l.empty() {
		l.free(l.oldest())
	}
}
