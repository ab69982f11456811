package etcdcoord

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

// run is what one Start started. Its fields are the supervisor's until done, then Stop's.
type run struct {
	quit context.CancelFunc
	done chan struct{} // closed when the supervisor has ended

	epoch     *epoch           // not closed yet; nil while healing
	unrevoked *session.Session // etcd has not confirmed that its lease is gone
}

// Start makes this replica a member: it returns when a session exists, or an error with nothing
// left behind. It is idempotent, and after Stop it starts afresh.
//
// Without a deadline in ctx it gives up when etcd has not answered for RequestTimeout, and waits
// for a dead predecessor with the same ReplicaID for SessionTTL + RequestTimeout. Errors:
// *CoordinationUnavailableError, which names the endpoints; *ReplicaIDInUseError; ErrStopped if
// Stop was called meanwhile.
func (c *Coordinator) Start(ctx context.Context) error {
	if err := c.lock(ctx); err != nil {
		return fencing.Unavailable(ctx, "start", c.cfg.ReplicaID, err)
	}
	defer c.unlock()
	c.mu.Lock()
	running := c.state == isRunning
	ctx, abort := context.WithCancelCause(ctx)
	c.abort = abort
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.abort = nil
		c.mu.Unlock()
		abort(nil)
	}()
	if running {
		_, err := c.current(ctx, "start", c.cfg.ReplicaID)
		return err
	}
	e, err := c.openEpoch(ctx)
	if err != nil {
		return c.startError(ctx, err)
	}
	supervised, quit := context.WithCancel(context.Background())
	r := &run{quit: quit, done: make(chan struct{}), epoch: e, unrevoked: e.session}
	c.set(func() { c.state, c.epoch, c.run, c.lostErr = isRunning, e, r, nil })
	c.cfg.Logger.Info("started", "replica", c.cfg.ReplicaID, "ttl", e.session.TTL())
	go func() {
		defer close(r.done)
		c.supervise(supervised, r)
	}()
	return nil
}

func (c *Coordinator) startError(ctx context.Context, err error) error {
	if errors.Is(err, ErrReplicaIDInUse) || errors.Is(context.Cause(ctx), ErrStopped) {
		return errors.Join(context.Cause(ctx), err)
	}
	return fencing.Unavailable(ctx, "start", c.cfg.ReplicaID, fmt.Errorf("etcd at %v: %w", c.client.Endpoints(), err))
}

// Stop ends every turn and leadership of this replica (Stopped), frees all its places in one
// revoke, so that others go on at once, and waits for its goroutines and listeners. It is
// idempotent. Holder records and leases of the LeaseProvider stay.
//
// It returns by ctx's deadline whatever etcd does, and without one after RequestTimeout. A ctx
// that has already ended gives it two seconds. What etcd has not confirmed by then is a
// *CoordinationUnavailableError; it goes on in the background for a while, and in the end the
// places go with the session's TTL.
func (c *Coordinator) Stop(ctx context.Context) error {
	ctx, cancel := backend.ForGivingBack(ctx, c.cfg.RequestTimeout)
	defer cancel()
	c.mu.Lock()
	if c.abort != nil {
		c.abort(ErrStopped)
	}
	c.mu.Unlock()
	if err := c.lock(ctx); err != nil {
		return fencing.Unavailable(ctx, "stop", c.cfg.ReplicaID, err)
	}
	defer c.unlock()
	var r *run
	var e *epoch
	c.set(func() {
		r, e = c.run, c.epoch
		c.state, c.epoch, c.run = isStopped, nil, nil
	})
	if r != nil {
		// The contexts end first; only then is anything sent to etcd.
		if e != nil {
			e.end(fencing.Stopped, nil, ErrStopped)
		}
		r.quit()
		if err := c.takeDown(ctx, r); err != nil {
			return fencing.Unavailable(ctx, "stop", c.cfg.ReplicaID, err)
		}
		c.cfg.Logger.Info("stopped", "replica", c.cfg.ReplicaID)
	}
	if c.events.Drain(ctx) != nil {
		c.cfg.Logger.Warn("stopped before all listeners had finished", "replica", c.cfg.ReplicaID)
	}
	return nil
}

// takeDown waits for the rest of Stop, which has time of its own: what a caller no longer waits
// for must be finished all the same.
func (c *Coordinator) takeDown(ctx context.Context, r *run) error {
	finished := make(chan error, 1)
	go func() {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.RequestTimeout)
		defer cancel()
		finished <- c.finish(limit, r)
	}()
	select {
	case err := <-finished:
		return err
	case <-ctx.Done():
		return fmt.Errorf("not confirmed, places end with the session in %v at most: %w", c.cfg.SessionTTL, ctx.Err())
	}
}

func (c *Coordinator) finish(ctx context.Context, r *run) error {
	<-r.done // its requests have ended with r.quit
	if r.epoch != nil {
		r.epoch.end(fencing.Stopped, nil, ErrStopped) // for one that was opened while Stop began
		r.epoch.session.End(ErrStopped)
	}
	var err error
	if r.unrevoked != nil {
		err = c.leave(ctx, r.unrevoked)
	}
	if r.epoch != nil {
		r.epoch.close()
	}
	c.leases.close()
	return err
}

// leave revokes the lease. Just before it says so in the registration, but the revoke does not
// wait for that longer than a moment: others are waiting for the revoke.
func (c *Coordinator) leave(ctx context.Context, s *session.Session) error {
	mark, cancel := context.WithTimeout(ctx, markLimit)
	defer cancel()
	if err := s.MarkStopping(mark); err != nil {
		c.cfg.Logger.Debug("others will take this stop for a crash", "replica", c.cfg.ReplicaID, "err", err)
	}
	return s.Revoke(ctx)
}

const markLimit = 50 * time.Millisecond

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

const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
)

// heal revokes the lost session's lease until etcd has confirmed it, and then opens a new epoch.
// Registering over a lease that still lives would hide its end from everybody who waits behind
// its tickets. It only returns an error when ctx has ended.
func (c *Coordinator) heal(ctx context.Context, r *run) error {
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		err := c.tryHeal(ctx, r)
		if err == nil || ctx.Err() != nil {
			return err
		}
		c.cfg.Logger.Warn("no session yet", "replica", c.cfg.ReplicaID, "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause/2 + rand.N(pause)):
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
	e, err := c.openEpoch(ctx)
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

// lock takes the lifecycle token: starting and stopping exclude each other.
func (c *Coordinator) lock(ctx context.Context) error {
	select {
	case c.lifecycle <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.lifecycle <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Coordinator) unlock() { <-c.lifecycle }
