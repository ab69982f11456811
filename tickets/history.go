package tickets

import (
	"context"
	"math"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// recordsPerLease caps the keys of one history lease: etcd deletes them all in one step when
	// it expires, and a million at once would stall the cluster.
	recordsPerLease = 1000
	// rotations is how often per HistoryTTL a new lease is taken. An old one is never renewed.
	rotations = 24
	// remembered caps how many keys' last turns are kept in memory. Forgetting one only makes a
	// warm turn look cold.
	remembered = 1 << 16
)

// History is what outlives an epoch: the leases on which holder records hang, so that the record
// of an idle key goes away by itself, and the memory of which turns this process really held.
type History struct {
	client *clientv3.Client
	ttl    time.Duration
	limit  time.Duration // of one request

	mu    sync.Mutex // guards the fields below
	lease clientv3.LeaseID
	taken time.Time
	keys  map[string]struct{} // that hang on lease because of us
	asked *grant              // the request for the next lease, if one is under way
	held  map[string]int64    // fence of the last turn held, by key
}

// NewHistory makes a History whose records outlive idle keys by ttl. It makes no request.
func NewHistory(client *clientv3.Client, ttl, requestTimeout time.Duration) *History {
	return &History{
		client: client,
		ttl:    ttl,
		limit:  requestTimeout,
		held:   make(map[string]int64),
	}
}

// leaseFor gives the lease for key's record. Now and then it has to be granted first, by a request
// that spawn runs and that does not end with ctx: a caller with little patience must not leave a
// lease behind that nobody knows, and the next one finds what the first had asked for. Only a
// grant that is not answered within the limit can leave one; it has no keys and runs out by itself.
//
// Errors: that of the grant; ctx's; ErrEpochEnded when spawn refuses.
func (h *History) leaseFor(ctx context.Context, key string, spawn spawner) (clientv3.LeaseID, error) {
	for {
		id, asked, first := h.current(key)
		if asked == nil {
			return id, nil
		}
		if first && !spawn(func(ctx context.Context) { h.ask(ctx, asked) }) {
			h.answered(asked, 0, time.Time{}, ErrEpochEnded)
		}
		select {
		case <-asked.done:
			if asked.err != nil {
				return 0, asked.err
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// spawner runs a function in the background until its context ends, or says that it will not.
type spawner func(func(context.Context)) bool

// grant is one request for a lease, which any number of callers wait for.
type grant struct {
	done chan struct{} // closed when err is final
	err  error
}

// fresh is how long a lease is used for new records, and how old the record of a turn that is given
// back may be without being put again.
func (h *History) fresh() time.Duration { return h.ttl / rotations }

// current is the lease for key's record, or the request for the next one to wait for. first: it is
// for the caller to make that request.
func (h *History) current(key string) (id clientv3.LeaseID, asked *grant, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease != 0 && time.Since(h.taken) <= h.fresh() {
		_, known := h.keys[key]
		if known || len(h.keys) < recordsPerLease {
			h.keys[key] = struct{}{}
			return h.lease, nil, false
		}
	}
	if h.asked != nil {
		return 0, h.asked, false
	}
	h.asked = &grant{done: make(chan struct{})}
	return 0, h.asked, true
}

// ask grants the next lease.
func (h *History) ask(ctx context.Context, asked *grant) {
	request, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	taken := time.Now()
	// A record that was put at the end of the lease's time of use, for a turn that was held for almost
	// as long as needs no new record, must still live for ttl.
	answer, err := h.client.Grant(request, int64(math.Ceil((h.ttl + 2*h.fresh()).Seconds())))
	if err == nil {
		h.answered(asked, answer.ID, taken, nil)
		return
	}
	if ctx.Err() != nil {
		err = ErrEpochEnded
	}
	h.answered(asked, 0, taken, err)
}

// answered lets everybody go on who waits for the request.
func (h *History) answered(asked *grant, id clientv3.LeaseID, taken time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.lease, h.taken, h.keys = id, taken, make(map[string]struct{})
	}
	h.asked, asked.err = nil, err
	close(asked.done)
}

// leaseGone says that etcd does not know the lease any more: the next one to ask gets another.
func (h *History) leaseGone(id clientv3.LeaseID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease == id {
		h.lease = 0
	}
}

// remember notes that the turn was really given to a caller of this process.
func (h *History) remember(key string, fence int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.held[key]; !ok && len(h.held) >= remembered {
		for other := range h.held { // any one
			delete(h.held, other)
			break
		}
	}
	h.held[key] = fence
}

// heldLast says whether the last turn of key that this process really held has that fence.
func (h *History) heldLast(key string, fence int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[key] == fence && fence != 0
}
