package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/hold"
	"github.com/andresayac/botmesh-etcd/internal/janitor"
	"github.com/andresayac/botmesh-etcd/internal/keys"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

var (
	// ErrNotElected says that somebody else leads or campaigns. It is no failure.
	ErrNotElected = errors.New("not elected: another candidate is there")
	// ErrSessionEnded says that the elector has ended. It comes wrapped with the cause given to End.
	ErrSessionEnded = errors.New("the session of the election has ended")
	// ErrReleased is how a leadership ends that was resigned.
	ErrReleased = hold.ErrReleased
)

// Config of an Elector. All fields are required.
type Config struct {
	Client         *clientv3.Client
	Schema         keys.Schema
	Session        *session.Session
	Janitor        *janitor.Janitor
	ReplicaID      string        // the value of our candidate keys
	RequestTimeout time.Duration // of a single request to etcd
	Logger         *slog.Logger

	// Gained is told after a win, before Lead or TryLead return. It must not block.
	Gained func(name string, fence fencing.Token)
	// Lost is told when a leadership was lost or ended by End, never for Resign, and always after its
	// Gained. err is the *fencing.LeaseLostError. It must not block.
	Lost func(name string, fence fencing.Token, err error)
}

// Elector campaigns for any number of names, on one session. Its methods may be called concurrently.
type Elector struct {
	cfg  Config
	ctx  context.Context // ends with End
	quit context.CancelFunc
	wg   sync.WaitGroup // campaigns and the audit

	mu        sync.Mutex             // guards the fields below, and the slots
	slots     map[string]*slot       // names for which our candidate key is in use, or not known to be gone
	leaders   map[string]*Leadership // those that live, or are over by the clock alone; who ends one takes it out
	campaigns map[string]*campaign   // those that run; at most one per name, and never beside a leader
	calls     int                    // of Lead, under way
	auditing  bool
	endErr    error // why the elector ended; nil while it lives
	endReason fencing.LostReason
	endCause  error
}

// New makes an elector. It asks etcd nothing and starts nothing before the first Lead or TryLead.
// The caller must call End when the session has ended: until then a Lead on a dead session waits.
func New(cfg Config) *Elector {
	ctx, quit := context.WithCancel(context.Background())
	return &Elector{
		cfg:       cfg,
		ctx:       ctx,
		quit:      quit,
		slots:     make(map[string]*slot),
		leaders:   make(map[string]*Leadership),
		campaigns: make(map[string]*campaign),
	}
}

// Counts tells how many names are led here, and how many calls of Lead are under way.
func (e *Elector) Counts() (leading, campaigning int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.leaders), e.calls
}

// End ends every leadership with a *fencing.LeaseLostError of this reason and cause: when it
// returns, their contexts have ended. Then it makes every Lead and TryLead, under way or to come,
// return ErrSessionEnded. It does no I/O; the keys go with the session's lease, which the caller
// revokes afterwards. Further calls do nothing.
func (e *Elector) End(reason fencing.LostReason, cause error) {
	e.mu.Lock()
	if e.endErr != nil {
		e.mu.Unlock()
		return
	}
	e.endReason, e.endCause, e.endErr = reason, cause, ErrSessionEnded
	if cause != nil {
		e.endErr = fmt.Errorf("%w: %w", ErrSessionEnded, cause)
	}
	ended := make([]*Leadership, 0, len(e.leaders))
	for _, l := range e.leaders {
		// Under the lock, which a second End waits for: it, too, returns only after all contexts have ended.
		_ = l.hold.Lose(reason, cause)
		ended = append(ended, l)
	}
	clear(e.leaders)
	e.mu.Unlock()
	e.quit()
	for _, l := range ended {
		e.tellLost(l)
	}
}

// Close waits for the elector's goroutines. Call End first.
func (e *Elector) Close() { e.wg.Wait() }

// tellLost says once, for a leadership just taken out of e.leaders, that it was lost. The error is
// the one that its context ended with, which may be of another reason than the caller found.
func (e *Elector) tellLost(l *Leadership) {
	err := context.Cause(l.Context())
	level := slog.LevelWarn
	if lost := (*fencing.LeaseLostError)(nil); errors.As(err, &lost) && lost.Reason == fencing.Stopped {
		level = slog.LevelInfo
	}
	e.cfg.Logger.Log(context.Background(), level, "leadership lost",
		"replica", e.cfg.ReplicaID, "key", l.Name(), "fence", l.Fence(), "err", err)
	e.cfg.Lost(l.Name(), l.Fence(), err)
}

// begin counts a goroutine in, unless the elector has ended: Close waits for those counted before.
func (e *Elector) begin(run func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.endErr != nil {
		return false
	}
	e.wg.Go(run)
	e.auditLocked()
	return true
}

// auditLocked starts the audit, once, when there is something to audit.
func (e *Elector) auditLocked() {
	if !e.auditing {
		e.auditing = true
		e.wg.Go(e.audits)
	}
}

func (e *Elector) ended() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.endErr
}

// awaitEnd is for a call that found the session dead: it goes on when End has been called, so that
// a caller who tries again in the next session finds that one, and not this one again.
func (e *Elector) awaitEnd(ctx context.Context, op, name string) error {
	select {
	case <-e.ctx.Done():
		return e.ended()
	case <-ctx.Done():
		return fencing.Unavailable(ctx, op, name, ctx.Err())
	}
}
