package etcdcoord

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// supervise replaces the epoch whenever its session is lost, until Stop.
func (c *Coordinator) supervise(ctx context.Context, r *run) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.epoch.session.Done():
		}
		lostAt, lost := time.Now(), r.epoch
		why := lost.session.Err()
		lost.end(fencing.Expired, why, nil)
		c.set(func() {
			if c.epoch == lost {
				c.epoch, c.lostErr = nil, why
			}
			c.cluster, c.highest = lost.session.Cluster()
		})
		c.sessionLost(why)
		lost.close()
		r.epoch = nil
		if c.heal(ctx, r) != nil {
			return
		}
		c.sessionRestored(r.epoch.session, time.Since(lostAt))
	}
}

// Each attempt may ask for a lease. An etcd that refuses them must not be asked, by a fleet that
// lost its sessions together, more than once in a while; and a pause is only made after an answer
// that was no good, for an etcd that cannot be reached does not answer.
const (
	healPause     = 500 * time.Millisecond
	longHealPause = 2 * time.Second
)

// heal revokes the lost session's lease until etcd has confirmed it, and then opens a new epoch.
// Registering over a lease that still lives would hide its end from everybody who waits behind
// its tickets. It only returns an error when ctx has ended.
func (c *Coordinator) heal(ctx context.Context, r *run) error {
	for pause := healPause; ; pause = min(2*pause, longHealPause) {
		err := c.tryHeal(ctx, r)
		if err == nil || ctx.Err() != nil {
			return err
		}
		c.cfg.Logger.Warn("no session yet", "replica", c.cfg.ReplicaID, "err", err)
		c.set(func() { // for those who wait: it may be news to them, a replica id that is somebody else's now
			if c.run == r {
				c.lostErr = err
			}
		})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause + rand.N(pause/4)):
		}
	}
}

func (c *Coordinator) tryHeal(ctx context.Context, r *run) error {
	if r.unrevoked != nil {
		request, cancel := backend.WithTimeout(ctx, c.cfg.RequestTimeout)
		defer cancel()
		if err := r.unrevoked.Revoke(request); err != nil {
			return fmt.Errorf("revoke the lost lease: %w", err)
		}
		r.unrevoked = nil
	}
	e, err := c.openEpoch(ctx, r.peers)
	if err != nil {
		return err
	}
	r.epoch, r.unrevoked = e, e.session
	c.set(func() {
		if c.run == r { // else Stop has begun, and takes it down
			c.epoch = e
		}
	})
	return nil
}
