package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/keys"
)

const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
)

// Lead campaigns until elected. It returns a *Leadership, or
//
//   - the caller's cause when ctx is cancelled;
//   - a *fencing.CoordinationUnavailableError when ctx's deadline passes, or when etcd says that we
//     may not do this. Everything else that etcd may say is waited out;
//   - ErrSessionEnded when the elector ends;
//   - fencing.ErrInvalidKey for what cannot be a name.
//
// ctx bounds the waiting only: the leadership outlives it. After an error the candidate key is
// removed in the background.
func (e *Elector) Lead(ctx context.Context, name string) (*Leadership, error) {
	if err := keys.Check("election name", name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fencing.Unavailable(ctx, "lead", name, err)
	}
	e.count(1)
	defer e.count(-1)
	if err := e.take(ctx, name, false); err != nil {
		return nil, e.notTaken(ctx, "lead", name, err)
	}
	c := newCampaign(e, name)
	e.running(c, true)
	if !e.begin(c.run) {
		return nil, e.ended()
	}
	return c.await(ctx)
}

func (e *Elector) count(d int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls += d
}

// notTaken is what a caller is told who did not get the slot.
func (e *Elector) notTaken(ctx context.Context, op, name string, err error) error {
	if errors.Is(err, ErrNotElected) || errors.Is(err, ErrSessionEnded) {
		return err
	}
	return fencing.Unavailable(ctx, op, name, err)
}

// campaign is one Lead that has got the slot. It runs on a goroutine of its own, so that its caller
// can go whatever etcd does, and hands over what is then left to do.
type campaign struct {
	e        *Elector
	ctx      context.Context
	quit     context.CancelFunc
	own      candidate // used by run alone, but for what inEtcd tells
	inEtcd   atomic.Int64
	watcher  *wakeableWatcher
	headSeen atomic.Int64 // audits in a row that saw our key as the oldest

	decided  atomic.Bool   // won, or given up by the caller: whoever sets it decides
	finished chan struct{} // closed when won and err are final
	won      *Leadership
	err      error

	mu   sync.Mutex // guards last
	last error      // what etcd said last, for the caller whose deadline passes
}

func newCampaign(e *Elector, name string) *campaign {
	ctx, quit := context.WithCancel(e.ctx)
	return &campaign{
		e: e, ctx: ctx, quit: quit, own: e.candidate(name), finished: make(chan struct{}),
		watcher: &wakeableWatcher{Watcher: e.cfg.Client.Watcher, limit: e.cfg.RequestTimeout},
	}
}

// await is the caller's side.
func (c *campaign) await(ctx context.Context) (*Leadership, error) {
	select {
	case <-c.finished:
	case <-ctx.Done():
		if c.decided.CompareAndSwap(false, true) {
			c.quit()
			c.e.leaves(c)
			return nil, c.gaveUp(ctx)
		}
		<-c.finished // it was won in the same moment; there is no I/O between that and this
	case <-c.e.ctx.Done():
		if c.decided.CompareAndSwap(false, true) {
			c.quit()
			return nil, c.e.ended()
		}
		<-c.finished
	}
	if ended := c.e.ended(); ended != nil {
		return nil, ended
	}
	// Between the win and this goroutine's turn the machine may have slept: look once more.
	if errors.Is(c.err, errDead) || c.e.cfg.Session.Check() != nil {
		return nil, c.e.awaitEnd(ctx, "lead", c.own.name)
	}
	return c.won, c.err
}

// gaveUp is what the caller is told whose context has ended.
func (c *campaign) gaveUp(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := ctx.Err()
	if c.last != nil {
		err = fmt.Errorf("%w; the last attempt failed: %v", err, c.last)
	}
	return fencing.Unavailable(ctx, "lead", c.own.name, err)
}

// run tries until it is elected, or nobody waits for it any more, or trying has no sense.
func (c *campaign) run() {
	defer c.quit()
	err := c.elect()
	c.e.running(c, false)
	if err != nil || !c.decided.CompareAndSwap(false, true) {
		c.e.letGo(c.own)
		c.finish(nil, err)
		return
	}
	c.finish(c.e.won(c.own))
}

// finish lets the caller know, unless he has gone.
func (c *campaign) finish(won *Leadership, err error) {
	c.won, c.err = won, err
	close(c.finished)
}

// elect returns nil when our candidate was seen to lead.
func (c *campaign) elect() error {
	pause := firstPause
	for c.ctx.Err() == nil {
		if c.e.cfg.Session.Check() != nil {
			<-c.ctx.Done() // End is on its way, or the caller goes
			break
		}
		was, began := c.own.rev, time.Now()
		elected, err := c.attempt()
		if elected {
			return nil
		}
		c.note(err)
		switch backend.Classify(err) {
		case backend.Denied, backend.Refused:
			return fencing.Unavailable(c.ctx, "lead", c.own.name, err)
		}
		if c.own.rev != was || time.Since(began) > longPause {
			pause = firstPause // it got ahead, or waited for a good while
		}
		select {
		case <-c.ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
		pause = min(2*pause, longPause)
	}
	return c.ctx.Err()
}

// attempt goes as far as it can: settle, put, wait, verify. What it reached is kept in c.own.
func (c *campaign) attempt() (elected bool, err error) {
	if c.own.ghost != 0 {
		if err := c.e.settle(c.ctx, &c.own); err != nil {
			return false, err
		}
	}
	if c.own.rev == 0 {
		err = c.e.enter(c.ctx, &c.own, false)
	}
	c.inEtcd.Store(c.own.rev)
	// A look before the waiting as well: nobody may be there to wait for, and when the waiting was broken
	// off, the reason may be that our key needs a look.
	if err == nil {
		elected, err = c.e.verify(c.ctx, &c.own)
	}
	if err == nil && !elected {
		err = c.wait()
		if err == nil {
			elected, err = c.e.verify(c.ctx, &c.own)
		}
	}
	switch {
	case errors.Is(err, errGone):
		c.own.rev = 0 // deleted from outside: to the end of the queue
	case errors.Is(err, errInTheWay):
		err = errors.Join(err, c.e.withdraw(c.ctx, &c.own))
	}
	c.inEtcd.Store(c.own.rev)
	return elected, err
}

// wait returns nil when no older candidate is left, as far as the stock election can tell.
func (c *campaign) wait() error {
	session, election, err := c.stock()
	if err != nil {
		return err
	}
	defer session.Orphan()
	if err := election.Campaign(c.ctx, c.e.cfg.ReplicaID); err != nil {
		return err
	}
	if election.Rev() != c.own.rev {
		return errGone
	}
	return nil
}

func (c *campaign) note(err error) {
	if err == nil {
		return
	}
	c.e.cfg.Logger.Debug("campaign goes on", "replica", c.e.cfg.ReplicaID, "key", c.own.name, "err", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = err
}

// running tells the audit which campaigns there are.
func (e *Elector) running(c *campaign, yes bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if yes {
		e.campaigns[c.own.name] = c
	} else {
		delete(e.campaigns, c.own.name)
	}
}

// leaves says at once what run will find out soon: a TryLead that comes after the caller's return
// must not be told that somebody campaigns.
func (e *Elector) leaves(c *campaign) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.campaigns[c.own.name] == c { // else the slot may be somebody else's by now
		e.slots[c.own.name].leaving = true
	}
}
