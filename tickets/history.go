package tickets

import (
	"context"
	"math"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
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

	granting chan struct{} // one token: who has it may ask for a lease
	mu       sync.Mutex    // guards the fields below
	lease    clientv3.LeaseID
	taken    time.Time
	keys     map[string]struct{} // that hang on lease because of us
	held     map[string]int64    // fence of the last turn held, by key
}

// NewHistory makes a History whose records outlive idle keys by ttl. It makes no request.
func NewHistory(client *clientv3.Client, ttl, requestTimeout time.Duration) *History {
	return &History{
		client:   client,
		ttl:      ttl,
		limit:    requestTimeout,
		granting: make(chan struct{}, 1),
		held:     make(map[string]int64),
	}
}

// leaseFor gives the lease for key's record. Now and then it has to ask etcd for a new one.
//
// A grant whose answer is lost leaves a lease without keys, which runs out by itself.
func (h *History) leaseFor(ctx context.Context, key string) (clientv3.LeaseID, error) {
	if id, ok := h.current(key); ok {
		return id, nil
	}
	select {
	case h.granting <- struct{}{}:
		defer func() { <-h.granting }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if id, ok := h.current(key); ok { // taken meanwhile
		return id, nil
	}
	request, cancel := backend.WithTimeout(ctx, h.limit)
	defer cancel()
	taken := time.Now()
	// A record that was put at the end of the lease's time of use, for a turn that was held for almost
	// as long as needs no new record, must still live for ttl.
	answer, err := h.client.Grant(request, int64(math.Ceil((h.ttl + 2*h.fresh()).Seconds())))
	if err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease, h.taken = answer.ID, taken
	h.keys = map[string]struct{}{key: {}}
	return h.lease, nil
}

// fresh is how long a lease is used for new records, and how old the record of a turn that is given
// back may be without being put again.
func (h *History) fresh() time.Duration { return h.ttl / rotations }

func (h *History) current(key string) (clientv3.LeaseID, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease == 0 || time.Since(h.taken) > h.fresh() {
		return 0, false
	}
	if _, ok := h.keys[key]; !ok {
		if len(h.keys) >= recordsPerLease {
			return 0, false
		}
		h.keys[key] = struct{}{}
	}
	return h.lease, true
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
