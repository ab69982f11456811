package session

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// watchEvery bounds how long the watchdog sleeps: timers stand still while the machine is
// suspended, the clock does not.
const watchEvery = time.Second

// start runs the two loops of a live session. They end when the session does.
func (s *Session) start(ctx context.Context) {
	s.wg.Go(func() { s.watchdog(ctx) })
	s.wg.Go(func() { s.renewals(ctx) })
}

// watchdog ends the session when its window does, also while a renewal hangs.
func (s *Session) watchdog(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if s.Check() != nil {
			return
		}
		timer.Reset(min(s.TrustLeft(), watchEvery))
	}
}

// renewals sends one renewal after the other. An answered one is followed by a pause, a failed one
// by another try soon.
func (s *Session) renewals(ctx context.Context) {
	pause := s.cfg.RenewEvery
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		switch kind := s.renew(ctx); kind {
		case backend.None:
			pause = s.cfg.RenewEvery
		case backend.LeaseGone:
			return
		case backend.Denied:
			// It will be denied again, unless an operator notices: no storm.
			pause = s.cfg.RenewEvery
		default:
			pause = min(s.cfg.RenewEvery, s.ttl/20)
		}
		timer.Reset(pause)
	}
}

// renew makes one attempt, bounded so that a black-holed endpoint costs one attempt and not the
// window: the next one goes out on a fresh stream, maybe to another endpoint.
func (s *Session) renew(ctx context.Context) backend.Kind {
	attempt, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.ttl/3)
	defer cancel()
	sent := s.cfg.Clock()
	answer, err := s.cfg.Client.KeepAliveOnce(attempt, s.lease)
	now := s.cfg.Clock()
	if ctx.Err() != nil {
		return backend.Canceled // the session has ended meanwhile
	}
	s.cfg.Renewed(now-sent, err)
	kind := backend.Classify(err)
	if err == nil {
		s.Saw(answer.ResponseHeader.GetRevision()) // all that an idle replica sees of what others write
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case kind == backend.LeaseGone:
		s.endLocked(fmt.Errorf("%w: etcd says that the lease is gone", ErrLost))
	case err != nil:
		s.renewErr = err
	case s.err == nil && !s.trust.open(now):
		// The window ended while the answer was under way, and somebody may have been told so.
		s.renewErr = nil
		s.endLocked(s.notRenewed())
	case s.err == nil:
		s.renewErr = nil
		s.trust = s.trust.renewed(sent, time.Duration(answer.TTL)*time.Second)
	}
	return kind
}
