package tickets

import (
	"context"
	"time"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// Ticket is a place in a key's queue. Use it once, for Acquire or Cancel.
type Ticket struct {
	queue *Queue
	key   string
	slot  int

	// Guarded by queue.mu.
	state  state
	fence  int64 // create revision of the ticket's key; 0 until Reserve was answered
	eager  bool  // granted by the transaction that made it
	spent  bool  // Acquire or Cancel has been called
	dirty  bool  // a trigger came since the last grant was sent: it may be head without knowing
	queued bool  // a grant is about to be sent
	busy   bool  // a grant is under way
	noPuts bool  // etcd is full: leave without a put
	prev   record
	warm   bool
	mod    int64 // a ghost's: the mod revision of the registration that the lost Reserve carried
	final  bool  // a ghost's: its Reserve cannot be applied any more, only may have been
	turn   *Turn // nil unless Acquire has returned it
	// named is a moment before the record was put that names the ticket. AcquireTurn may be called
	// long after that, and the record's time runs meanwhile.
	named time.Time

	over chan struct{} // closed when the waiting is over: granted, or err is set
	gone chan struct{} // closed when the ticket has left etcd, or its epoch has ended
	err  error         // why the waiting ended without a turn
	last error         // of the last attempt to leave

	unconfirmed bool // the epoch ended before etcd had confirmed that the ticket left
}

// state is where a ticket is on its way.
type state uint8

const (
	reserving state = iota // Reserve is in flight
	waiting                // in the queue, Acquire called or not
	granted                // the grant is known, Acquire has not returned it yet
	holding                // Acquire has returned: the work runs
	leaving                // released, cancelled, timed out, or a ghost that was found
	ghost                  // the outcome of Reserve is unknown
	gone                   // not in the queue any more; its slot may be another ticket's
)

// live tickets are in the queue for somebody; a ghost or a leaving one is not.
func (s state) live() bool { return s == waiting || s == granted || s == holding }

// Key is what the ticket is for.
func (t *Ticket) Key() string { return t.key }

// Fence is the ticket's place, and the fence of the turn that it becomes.
func (t *Ticket) Fence() fencing.Token {
	if t == nil || t.queue == nil {
		return 0
	}
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	return fencing.Token(t.fence)
}

// Cancel gives the place up unused. After the turn was acquired it does nothing and returns nil,
// so `defer ticket.Cancel(ctx)` is the idiom. A ctx that has already ended does not stop it; what
// etcd has not confirmed in time is an ErrUnavailable and goes on in the background.
func (t *Ticket) Cancel(ctx context.Context) error {
	if t == nil || t.queue == nil {
		return ErrForeignTicket
	}
	q := t.queue
	q.mu.Lock()
	if t.turn != nil {
		q.mu.Unlock()
		return nil
	}
	t.spent = true
	if t.state.live() {
		q.giveUpLocked(t, ErrTicketSpent)
	}
	return q.awaitGone(ctx, t, "cancel")
}

// Belongs says whether the ticket is of the process whose history this is.
func (t *Ticket) Belongs(h *History) bool {
	return t != nil && t.queue != nil && t.queue.cfg.History == h
}
