package etcdcoord

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/peers"
	"github.com/andresayac/botmesh-etcd/internal/session"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// run is what one Start started. Its fields are the supervisor's until done, then Stop's.
type run struct {
	quit context.CancelFunc
	done chan struct{} // closed when the supervisor has ended

	peers     *peers.Known     // who is there, from one epoch to the next
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
	ctx, ended, err := c.beginStart(ctx)
	if err != nil {
		return err
	}
	defer ended()
	if err := c.lock(ctx); err != nil {
		return fencing.Unavailable(ctx, "start", c.cfg.ReplicaID, err)
	}
	defer c.unlock()
	c.mu.Lock()
	running := c.state == isRunning
	c.mu.Unlock()
	if running {
		ctx, cancel := backend.WithTimeout(ctx, c.cfg.RequestTimeout)
		defer cancel()
		_, err := c.current(ctx, "start", c.cfg.ReplicaID)
		return err
	}
	known := &peers.Known{}
	e, err := c.openEpoch(ctx, known)
	if err != nil {
		return c.startError(ctx, err)
	}
	supervised, quit := context.WithCancel(context.Background())
	r := &run{quit: quit, done: make(chan struct{}), peers: known, epoch: e, unrevoked: e.session}
	c.set(func() { c.state, c.epoch, c.run, c.lostErr = isRunning, e, r, nil })
	c.cfg.Logger.Info("started", "replica", c.cfg.ReplicaID, "ttl", e.session.TTL())
	go func() {
		defer close(r.done)
		c.supervise(supervised, r)
	}()
	return nil
}

// beginStart makes the start one that Stop can abort.
func (c *Coordinator) beginStart(ctx context.Context) (_ context.Context, ended func(), err error) {
	ctx, abort := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping > 0 { // else it could get ahead of that Stop, which would then wait for it
		abort(nil)
		return nil, nil, ErrStopped
	}
	c.starts[&abort] = struct{}{}
	return ctx, func() {
		c.mu.Lock()
		delete(c.starts, &abort)
		c.mu.Unlock()
		abort(nil)
	}, nil
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
// places go with the session's TTL. Calling Stop again waits for it, or tries again.
func (c *Coordinator) Stop(ctx context.Context) error {
	ctx, cancel := backend.ForGivingBack(ctx, c.cfg.RequestTimeout)
	defer cancel()
	if err := c.stop(ctx); err != nil {
		return err
	}
	// Without the lifecycle token: a listener that is waited for here may want to start or stop.
	if c.events.Drain(ctx) != nil {
		c.cfg.Logger.Warn("stopped before all listeners had finished", "replica", c.cfg.ReplicaID)
	}
	return nil
}

func (c *Coordinator) stop(ctx context.Context) error {
	// Whatever fails has its type also when ctx was cancelled: who only looks for ErrUnavailable must
	// hear that the places may not be free.
	id := c.cfg.ReplicaID
	if err := c.lockToStop(ctx); err != nil {
		return fencing.Unavailable(context.WithoutCancel(ctx), "stop", id,
			errors.Join(context.Cause(ctx), fmt.Errorf("another Start or Stop has not ended: %w", err)))
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
		c.down = c.takeDown(ctx, r, c.leases.detach(), c.down)
	} else if c.down.failed() {
		c.down = c.takeDown(ctx, c.down.run, c.down.provider, c.down)
	}
	if c.down == nil {
		return nil
	}
	select {
	case <-c.down.done:
	case <-ctx.Done():
		return fencing.Unconfirmed(ctx, "stop", id, errors.New("the places end with the session at the latest"))
	}
	if c.down.failed() {
		return fencing.Unavailable(context.WithoutCancel(ctx), "stop", id, c.down.err)
	}
	c.down = nil
	c.cfg.Logger.Info("stopped", "replica", c.cfg.ReplicaID)
	return nil
}

// takedown is the rest of a Stop. It has time of its own: what a caller no longer waits for must
// be finished all the same. Whoever calls Stop again waits for it again.
type takedown struct {
	run      *run
	provider *fencing.EtcdLeases // may be nil
	done     chan struct{}
	err      error // to be read when done is closed
}

// failed: it has ended, and etcd has not confirmed it.
func (d *takedown) failed() bool {
	if d == nil {
		return false
	}
	select {
	case <-d.done:
		return d.err != nil
	default:
		return false
	}
}

// takeDown gives it the caller's time, and at least RequestTimeout. before is an earlier one, which
// may still be under way. Repeating it is safe.
func (c *Coordinator) takeDown(ctx context.Context, r *run, provider *fencing.EtcdLeases, before *takedown) *takedown {
	until := time.Now().Add(c.cfg.RequestTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.After(until) {
		until = deadline
	}
	d := &takedown{run: r, provider: provider, done: make(chan struct{})}
	go func() {
		defer close(d.done)
		limit, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
		defer cancel()
		d.err = c.finish(limit, r, provider)
		if before != nil {
			<-before.done
		}
	}()
	return d
}

func (c *Coordinator) finish(ctx context.Context, r *run, provider *fencing.EtcdLeases) error {
	var closing sync.WaitGroup
	if provider != nil {
		closing.Go(provider.Close) // its verbs and their clean-up need nothing of what follows
	}
	defer closing.Wait()
	<-r.done // its requests have ended with r.quit
	if r.epoch != nil {
		r.epoch.end(fencing.Stopped, nil, ErrStopped) // for one that was opened while Stop began
		r.epoch.session.End(ErrStopped)
		c.unname(ctx, r.epoch.queue)
	}
	var err error
	if r.unrevoked != nil {
		err = c.leave(ctx, r.unrevoked)
	}
	if r.epoch != nil {
		r.epoch.close()
	}
	return err
}

// unname takes turns that were granted and never begun out of the records. There are few of them, if
// any. An etcd that is slow with this is slow with the revoke, too, which does not wait for long.
func (c *Coordinator) unname(ctx context.Context, q *tickets.Queue) {
	limit, cancel := context.WithTimeout(ctx, unnameLimit)
	defer cancel()
	if err := q.Unname(limit); err != nil {
		c.cfg.Logger.Debug("others will take turns that were not begun for held ones", "replica", c.cfg.ReplicaID, "err", err)
	}
}

// leave revokes the lease. Just before it says so in the registration, but the revoke does not
// wait for that longer than a moment: others are waiting for the revoke.
func (c *Coordinator) leave(ctx context.Context, s *session.Session) error {
	mark, cancel := context.WithTimeout(ctx, markLimit)
	defer cancel()
	if err := s.MarkStopping(mark); err != nil {
		c.cfg.Logger.Debug("others will take this stop for a crash", "replica", c.cfg.ReplicaID, "err", err)
	}
	return c.revoke(ctx, s)
}

// revoke tries until etcd confirms, says no, or ctx ends.
func (c *Coordinator) revoke(ctx context.Context, s *session.Session) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if c.client.Ctx().Err() != nil {
			return errClientClosed // a closed client would try a hundred times before it says so
		}
		request, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
		err := s.Revoke(request)
		cancel()
		switch backend.Classify(err) {
		case backend.None, backend.Denied, backend.Refused:
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-c.client.Ctx().Done():
			return errClientClosed
		case <-time.After(pause):
		}
	}
}

const (
	markLimit   = 50 * time.Millisecond
	unnameLimit = 500 * time.Millisecond
)

// lockToStop aborts every start that is under way or waits, so that Stop need not wait for them.
func (c *Coordinator) lockToStop(ctx context.Context) error {
	c.mu.Lock()
	c.stopping++
	for abort := range c.starts {
		(*abort)(ErrStopped)
	}
	c.mu.Unlock()
	err := c.lock(ctx)
	c.mu.Lock()
	c.stopping--
	c.mu.Unlock()
	return err
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
