package fencing

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/janitor"
)

const (
	// choreWorkers bounds how many requests run in the background at the same moment. Goroutines
	// exist only while there is work, however many leases are held.
	choreWorkers = 32
	// choreWarning is the failed attempt at which a chore that does not succeed is logged.
	choreWarning = 8
	// detachedPause is before the second attempt of a chore that came after Close.
	detachedPause = 20 * time.Millisecond
)

// chores is the janitor, with a count of what is not done yet, so that Close can wait for it. What
// comes after Close, from a verb that did not obey its context, is tried for DetachedLimit all the same.
type chores struct {
	janitor *janitor.Janitor
	log     *slog.Logger

	mu      sync.Mutex // guards the fields below
	pending int
	quiet   chan struct{} // made by close; closed when nothing is pending
	closed  bool          // the janitor drops what it is given
}

func newChores(log *slog.Logger) *chores {
	return &chores{janitor: janitor.New(choreWorkers), log: log}
}

// do runs attempt, in the background and with growing pauses, until it says that it is done. Its
// error is only for the log. attrs say what it is about.
func (c *chores) do(what string, attempt func(ctx context.Context) (done bool, err error), attrs ...any) {
	c.mu.Lock()
	defer c.mu.Unlock() // the janitor must not be closed meanwhile
	if c.closed {
		go c.detached(what, attempt, attrs...)
		return
	}
	c.pending++
	failed := 0
	c.janitor.Go(func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, backend.DetachedLimit)
		defer cancel()
		done, err := attempt(ctx)
		if done {
			c.finished()
			return true
		}
		if err != nil {
			if failed++; failed == choreWarning {
				c.log.Warn(what+" does not succeed, trying on", append(attrs, "attempts", failed, "err", err)...)
			}
		}
		return false
	})
}

// detached does without the janitor, for a bounded time.
func (c *chores) detached(what string, attempt func(ctx context.Context) (done bool, err error), attrs ...any) {
	ctx, cancel := context.WithTimeout(context.Background(), backend.DetachedLimit)
	defer cancel()
	for pause := detachedPause; ; pause *= 2 {
		done, err := attempt(ctx)
		if done {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			c.log.Warn(what+" did not succeed after the lease provider was closed; etcd does it when the etcd lease runs out",
				append(attrs, "err", err)...)
			return
		}
	}
}

func (c *chores) finished() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending--; c.pending == 0 && c.quiet != nil {
		close(c.quiet)
		c.quiet = nil
	}
}

// close waits until nothing is pending, but not longer than patience, drops what is left, and
// returns when no goroutine of the janitor remains.
func (c *chores) close(patience time.Duration) {
	quiet := make(chan struct{})
	c.mu.Lock()
	if c.pending == 0 {
		close(quiet)
	} else {
		c.quiet = quiet
	}
	c.mu.Unlock()
	closedWithin(quiet, patience)
	c.mu.Lock()
	c.closed = true
	left := c.pending
	c.mu.Unlock()
	if left > 0 {
		c.log.Warn("lease provider closed with clean-up left to do; etcd does it when the etcd leases run out", "left", left)
	}
	c.janitor.Close()
}
