package etcdcoord

import (
	"sync/atomic"
	"time"
)

// Stats is a snapshot of what a Coordinator has and has done since New.
type Stats struct {
	State     string // "new", "running", "healing" or "stopped"
	ReplicaID string
	LeaseID   int64         // of the session; 0 without one
	TTL       time.Duration // that etcd granted
	TrustLeft time.Duration // until the session ends if no renewal succeeds

	TurnsHeld      int // turns held now
	TicketsWaiting int // tickets in line now
	Reserving      int // Reserve calls under way
	Leaving        int // tickets given back and not yet confirmed by etcd
	Ghosts         int // Reserve calls with unknown outcome that are being cleaned up
	Leading        int // leaderships held now
	Campaigning    int // Lead calls that wait

	TurnsGranted   uint64
	TurnsReleased  uint64
	TurnsLost      uint64
	TicketsSkipped uint64 // of dead replicas, ahead of ours
	SessionsLost   uint64
	Renewals       uint64
	RenewalErrors  uint64
}

// counters only grow.
type counters struct {
	turnsGranted, turnsReleased, turnsLost, ticketsSkipped atomic.Uint64
	sessionsLost, renewals, renewalErrors                  atomic.Uint64
}

// Stats tells what the coordinator has and has done. It makes no request. Counting takes time in
// proportion to the tickets that this replica has.
func (c *Coordinator) Stats() Stats {
	c.mu.Lock()
	state, e := c.state, c.epoch
	c.mu.Unlock()
	s := Stats{
		State:          string(state),
		ReplicaID:      c.cfg.ReplicaID,
		TurnsGranted:   c.counters.turnsGranted.Load(),
		TurnsReleased:  c.counters.turnsReleased.Load(),
		TurnsLost:      c.counters.turnsLost.Load(),
		TicketsSkipped: c.counters.ticketsSkipped.Load(),
		SessionsLost:   c.counters.sessionsLost.Load(),
		Renewals:       c.counters.renewals.Load(),
		RenewalErrors:  c.counters.renewalErrors.Load(),
	}
	if e == nil {
		if state == isRunning {
			s.State = "healing"
		}
		return s
	}
	s.LeaseID, s.TTL, s.TrustLeft = int64(e.session.Lease()), e.session.TTL(), e.session.TrustLeft()
	n := e.queue.Counts()
	s.TurnsHeld, s.TicketsWaiting, s.Reserving, s.Leaving, s.Ghosts = n.Held, n.Waiting, n.InFlight, n.Leaving, n.Ghosts
	s.Leading, s.Campaigning = e.elector.Counts()
	return s
}
