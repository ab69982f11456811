package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/clock"
	"github.com/andresayac/botmesh-etcd/internal/keys"
)

// ErrLost is why a session ended without End: it was not renewed in time, or etcd says that its
// lease or registration is gone.
var ErrLost = errors.New("session lost")

// Config of a session. All fields are required.
type Config struct {
	Client         *clientv3.Client
	Schema         keys.Schema
	ReplicaID      string
	Incarnation    string    // tells this process from others that had the same id
	Started        time.Time // for whoever is refused because of us
	TTL            time.Duration
	RenewEvery     time.Duration
	Margin         time.Duration
	RequestTimeout time.Duration
	Logger         *slog.Logger
	Clock          clock.Clock
	Renewed        func(roundTrip time.Duration, err error) // told about every renewal
}

// Session is one lease of this replica. It is made by Open and never repaired: what comes after it
// is another Session.
type Session struct {
	cfg   Config
	lease clientv3.LeaseID
	ttl   time.Duration // what etcd granted
	key   string        // the registration's
	value string

	cluster uint64       // id of the etcd cluster that the session lives in
	highest atomic.Int64 // highest revision in any answer that was shown to Saw

	mu       sync.Mutex // guards the fields below
	trust    window
	mod      int64 // highest known mod revision of the registration
	renewErr error // of the last renewal, nil if it was answered
	err      error // why the session ended

	done chan struct{} // closed when the session has ended
	quit context.CancelFunc
	wg   sync.WaitGroup
}

// Lease is the session's lease. Every ticket and candidate of the replica hangs on it.
func (s *Session) Lease() clientv3.LeaseID { return s.lease }

// TTL is what etcd granted, which may be more than what was asked for.
func (s *Session) TTL() time.Duration { return s.ttl }

// Done is closed when the session ends, by loss or by End.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is why the session ended; nil while it lives.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Check returns nil while the session may be believed in. It asks the clock, not a timer.
func (s *Session) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !s.trust.open(s.cfg.Clock()) {
		s.endLocked(s.notRenewed())
	}
	return s.err
}

// TrustLeft is how long the session may be believed in if no renewal succeeds; 0 when it ended.
func (s *Session) TrustLeft() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0
	}
	return max(0, s.trust.left(s.cfg.Clock()))
}

// Lose ends the session because somebody else found out that it is gone.
func (s *Session) Lose(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(fmt.Errorf("%w: %w", ErrLost, cause))
}

// End ends the session for the reason cause, which Err then returns.
func (s *Session) End(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(cause)
}

// endLocked decides once: the first reason stays.
func (s *Session) endLocked(cause error) {
	if s.err != nil {
		return
	}
	s.err = cause
	s.trust = window{}
	close(s.done)
	s.quit()
}

func (s *Session) notRenewed() error {
	err := fmt.Errorf("%w: no renewal was answered for %v", ErrLost, (s.ttl - s.trust.margin).Round(100*time.Millisecond))
	if s.renewErr != nil {
		err = fmt.Errorf("%w: %w", err, s.renewErr)
	}
	return err
}

// Registration is the key of this replica's registration and its mod revision as last seen. Both
// go into the If of whatever must not be applied after a later clean-up.
func (s *Session) Registration() (key string, mod int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key, s.mod
}

func (s *Session) bumped(mod int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mod = max(s.mod, mod)
}

// Saw takes note of the revision of an answer, so that the next session can tell whether etcd was
// restored from an older snapshot.
func (s *Session) Saw(revision int64) {
	for {
		old := s.highest.Load()
		if revision <= old || s.highest.CompareAndSwap(old, revision) {
			return
		}
	}
}

// Cluster is the id of the etcd cluster and the highest revision that it was seen to have.
func (s *Session) Cluster() (id uint64, revision int64) { return s.cluster, s.highest.Load() }
