package etcdcoord

import (
	"errors"
	"time"

	"github.com/andresayac/botmesh-etcd/internal/session"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// This file is where what happened becomes an event, a hook, a count and a line in the log, but for
// what package election logs itself.

func (c *Coordinator) sessionLost(err error) {
	c.counters.sessionsLost.Add(1)
	c.cfg.Logger.Warn("session lost, healing", "replica", c.cfg.ReplicaID, "err", err)
	c.events.Send(SessionLost{At: time.Now(), Err: err})
}

func (c *Coordinator) sessionRestored(s *session.Session, gap time.Duration) {
	id, revision := s.Cluster()
	c.mu.Lock()
	changed := id != c.cluster || revision < c.highest
	c.mu.Unlock()
	if changed {
		c.cfg.Logger.Error("etcd is another cluster, or went back: fences given out before may be larger than those to come",
			"replica", c.cfg.ReplicaID, "cluster", id, "revision", revision)
	}
	c.cfg.Logger.Info("session restored", "replica", c.cfg.ReplicaID, "gap", gap)
	c.events.Send(SessionRestored{At: time.Now(), Gap: gap, ClusterChanged: changed})
}

func (c *Coordinator) renewed(roundTrip time.Duration, err error) {
	c.counters.renewals.Add(1)
	if err != nil {
		c.counters.renewalErrors.Add(1)
	}
	c.cfg.Logger.Debug("renewal", "replica", c.cfg.ReplicaID, "round_trip", roundTrip, "err", err)
	c.cfg.Hooks.renewed(roundTrip, err)
}

func (c *Coordinator) turnEvents() tickets.Events {
	return tickets.Events{
		TurnGranted: func(key string, _ Token, waited time.Duration) {
			c.counters.turnsGranted.Add(1)
			c.cfg.Hooks.turnGranted(key, waited)
		},
		TurnReleased: func(key string, _ Token, held time.Duration) {
			c.counters.turnsReleased.Add(1)
			c.cfg.Hooks.turnReleased(key, held)
		},
		TurnLost: func(key string, fence Token, err error) {
			c.counters.turnsLost.Add(1)
			c.cfg.Logger.Warn("turn lost", "replica", c.cfg.ReplicaID, "key", key, "fence", fence, "err", err)
			c.events.Send(TurnLost{At: time.Now(), Key: key, Fence: fence, Err: err})
			var lost *LeaseLostError
			if errors.As(err, &lost) {
				c.cfg.Hooks.turnLost(key, lost.Reason)
			}
		},
		TicketSkipped: func(key string, fence Token, replica string) {
			c.counters.ticketsSkipped.Add(1)
			c.cfg.Logger.Warn("ticket of a dead replica skipped", "replica", c.cfg.ReplicaID, "key", key, "fence", fence, "dead", replica)
			c.events.Send(TicketSkipped{At: time.Now(), Key: key, Fence: fence, Replica: replica})
		},
	}
}

func (c *Coordinator) leadershipGained(name string, fence Token) {
	c.events.Send(LeadershipGained{At: time.Now(), Name: name, Fence: fence})
}

func (c *Coordinator) leadershipLost(name string, fence Token, err error) {
	c.events.Send(LeadershipLost{At: time.Now(), Name: name, Fence: fence, Err: err})
}

func (c *Coordinator) replicaJoined(replica string) {
	c.cfg.Logger.Info("replica joined", "replica", c.cfg.ReplicaID, "other", replica)
	c.events.Send(ReplicaJoined{At: time.Now(), Replica: replica})
}

func (c *Coordinator) replicaLeft(replica string, crashed bool) {
	c.cfg.Logger.Info("replica left", "replica", c.cfg.ReplicaID, "other", replica, "crashed", crashed)
	c.events.Send(ReplicaLeft{At: time.Now(), Replica: replica, Crashed: crashed})
}
