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
)

// chores is the janitor, with a count of what is not done yet, so that Close can wait for it.
type chores struct {
	janitor *janitor.Janitor
	log     *slog.Logger

	mu      sync.Mutex // guards the fields below
	pending int
	quiet   chan struct{} // made by close; closed when nothing is pending
}

func newChores(log *slog.Logger) *chores {
	return &chores{janitor: janitor.New(choreWorkers), log: log}
}

// do runs attempt, in the background and with growing pauses, until it says that it is done. Its
// error is only for the log. attrs say what it is about.
func (c *chores) do(what string, attempt func(ctx context.Context) (done bool, err error), attrs ...any) {
	c.mu.Lock()
	c.pending++
	c.mu.Unlock()
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

func (c *chores) finished() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending--; c.pending == 0 && c.quiet != nil {
		close(c.quiet)
		c.quiet = nil
	}
}

// close waits until nothing is pending, but not longer than patience, drops what is left, and
// returns when no goroutine remains.
func (c *chores) close(patience time.Duration) {
	quiet := make(chan struct{})
	c.mu.Lock()
	if c.pending == 0 {
		close(quiet)
	} else {
		c.quiet = quiet
	}
	c.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-quiet:
	case <-timer.C:
		c.log.Warn("lease provider closed with clean-up left to do; etcd does it when the etcd leases run out")
	}
	c.janitor.Close()
}
