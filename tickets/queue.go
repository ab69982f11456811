package tickets

import (
	"context"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/janitor"
	"github.com/andresayac/botmesh-etcd/internal/keys"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

// Config of a Queue. All fields but MaxHold are required.
type Config struct {
	Client         *clientv3.Client
	Schema         keys.Schema
	Session        *session.Session
	Janitor        *janitor.Janitor // closed by the owner of the queue, after End
	History        *History
	ReplicaID      string
	Incarnation    string
	MaxHold        time.Duration // 0: no limit
	RequestTimeout time.Duration
	Logger         *slog.Logger
	Events         Events
}

// Events are told what happens. They are called without locks, and must not block.
type Events struct {
	TurnGranted   func(key string, fence fencing.Token, waited time.Duration)
	TurnReleased  func(key string, fence fencing.Token, held time.Duration)
	TurnLost      func(key string, fence fencing.Token, err error) // err is the *fencing.LeaseLostError
	TicketSkipped func(key string, fence fencing.Token, replica string)
}

// Queue is this replica's part of all keys' queues, for as long as one session lasts.
type Queue struct {
	cfg     Config
	me      record // without a fence
	lease   int64
	ready   chan struct{} // closed when the inbox watch was opened for the first time
	readied sync.Once
	life    context.Context
	quit    context.CancelFunc
	wg      sync.WaitGroup
	strange reported

	mu       sync.Mutex // guards the fields below, all lines and all tickets
	lines    map[string]*line
	ghosts   []*Ticket // waiting for the settle job
	settling bool      // the one settle job runs
	ended    bool
	unused   []*Ticket // when the queue ended: granted, or about to be, and never held
}

// New makes the queue of an epoch. Start it before use.
func New(cfg Config) *Queue {
	q := &Queue{
		cfg:   cfg,
		me:    record{Replica: cfg.ReplicaID, Incarnation: cfg.Incarnation},
		lease: int64(cfg.Session.Lease()),
		ready: make(chan struct{}),
		lines: make(map[string]*line),
	}
	q.life, q.quit = context.WithCancel(context.Background())
	return q
}

// Start opens the inbox and starts the audit. It returns when messages can arrive, or with ctx's
// cause; Close ends what it started either way.
func (q *Queue) Start(ctx context.Context) error {
	q.wg.Go(q.readInbox)
	q.wg.Go(q.audit)
	select {
	case <-q.ready:
		return nil
	case <-q.cfg.Session.Done():
		return q.cfg.Session.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// spawn runs f until the epoch ends. false: it has ended.
func (q *Queue) spawn(f func(context.Context)) bool {
	if q.life.Err() != nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return false // Close may be waiting already
	}
	q.wg.Go(func() { f(q.life) })
	return true
}

// End ends the epoch for the queue: every turn is lost for the given reason, every waiting ticket
// is Superseded, or fails with stopped if that is not nil. The turns' contexts have ended when it
// returns. Nothing is sent to etcd: the session's lease takes along all tickets.
func (q *Queue) End(reason fencing.LostReason, cause, stopped error) {
	q.quit()
	q.mu.Lock()
	q.ended = true
	var lost []*Turn
	for _, l := range q.lines {
		for _, t := range l.slots {
			if t == nil {
				continue
			}
			if t.state == holding {
				t.turn.hold.Lose(reason, cause)
				t.turn.stopTimer()
				lost = append(lost, t.turn)
			}
			if t.state == granted || t.state == waiting && t.busy {
				q.unused = append(q.unused, t)
			}
			q.endTicketLocked(t, cause, stopped)
		}
	}
	q.lines = make(map[string]*line)
	q.mu.Unlock()
	for _, turn := range lost {
		q.cfg.Events.TurnLost(turn.Key(), turn.Fence(), context.Cause(turn.Context()))
	}
}

func (q *Queue) endTicketLocked(t *Ticket, cause, stopped error) {
	t.err = stopped
	if stopped == nil {
		t.err = &fencing.LeaseLostError{Key: t.key, Token: fencing.Token(t.fence), Reason: fencing.Superseded, Err: cause}
	}
	if t.state == leaving {
		// Its last attempt may or may not have been applied; now the lease takes the ticket along.
		t.unconfirmed, t.last = true, cause
	}
	t.state = gone
	closeIfOpen(t.over)
	closeIfOpen(t.gone)
}

func closeIfOpen(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// Close waits for the queue's goroutines. Call End before.
func (q *Queue) Close() { q.wg.Wait() }
