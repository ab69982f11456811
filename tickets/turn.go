package tickets

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/hold"
)

// Turn is the right to run a key's work, from Acquire to Release. It is safe for concurrent use.
type Turn struct {
	hold   *hold.Hold
	queue  *Queue
	ticket *Ticket
	prev   string
	warm   bool
	since  time.Time
	timer  *time.Timer // MaxHold; nil without
}

// Key is what the turn is for.
func (t *Turn) Key() string { return t.hold.Key() }

// Fence is the turn's token. It is larger than that of every earlier turn of the key. Send it
// along with every write, and let the store refuse what is older than what it has seen.
func (t *Turn) Fence() fencing.Token { return t.hold.Token() }

// PreviousHolder is the id of the replica to which the previous turn of the key was given, also if
// that replica crashed, or lost its session, and perhaps never began. known is false for the first turn, after the key
// was idle for HistoryTTL, and whenever it cannot be told for certain.
//
// Do not compare the id with your own to find out whether your memory of the key is good: a
// process that was restarted under the same id has the id but not the memory. Warm tells that.
func (t *Turn) PreviousHolder() (replicaID string, known bool) { return t.prev, t.prev != "" }

// Warm is true only when this very Coordinator held the previous turn of the key, so whatever it
// remembers of the key is still good. It is never wrongly true, and may be wrongly false.
func (t *Turn) Warm() bool { return t.warm }

// Context ends when the turn does: with a *LeaseLostError as its cause before anybody else can be
// granted the key, or with ErrReleased after Release.
func (t *Turn) Context() context.Context { return t.hold.Context() }

// Bind gives a context with parent's values and deadline that ends with whichever ends first,
// parent or the turn, and keeps its cause. It is what handlers should use. cancel frees it.
func (t *Turn) Bind(parent context.Context) (context.Context, context.CancelFunc) {
	return t.hold.Bind(parent)
}

// AssertHeld returns nil while this process may believe that it has the turn, else the
// *LeaseLostError, or ErrReleased. It costs no I/O and is right at once after the process was
// frozen. It is a courtesy to your own code; what protects the data is the fence.
func (t *Turn) AssertHeld() error { return t.hold.AssertHeld() }

// Guard is a compare that holds while the turn's ticket is in etcd: for transactions on the same
// etcd that must not be applied after the turn has passed on.
func (t *Turn) Guard() clientv3.Cmp { return fencing.Guard(t.queue.keyOf(t.ticket), t.Fence()) }

// stopTimer stops MaxHold.
func (t *Turn) stopTimer() {
	if t.timer != nil {
		t.timer.Stop()
	}
}
