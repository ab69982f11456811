package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// errEnded is why the parts of a run are told to stop when it is over.
var errEnded = errors.New("the run is over")

// StalledError says that updates were under way and nothing moved any more.
type StalledError struct {
	For      time.Duration
	InFlight int
}

// Error names the numbers.
func (e *StalledError) Error() string {
	return fmt.Sprintf("%d updates are under way and nothing has moved for %v; the run was ended (see --verbose for what the replicas say)",
		e.InFlight, e.For.Round(time.Second))
}

// play starts the replicas and lets everything happen. began tells whether anything could.
func (r *run) play(parent context.Context) (began bool, err error) {
	ctx, stop := context.WithCancelCause(parent)
	defer stop(errEnded)
	for i := range r.o.Replicas {
		if _, err := r.fleet.Start(fmt.Sprintf("replica-%d", i+1)); err != nil {
			return false, err
		}
	}
	if err := r.fleet.WaitReady(ctx); err != nil {
		return false, err
	}
	r.in.Store(newInput(ctx, r.source(), r.plan.Known))

	var work errgroup.Group
	work.Go(func() error { return stopOn(stop, r.platform.Run(ctx, r.in.Load())) })
	work.Go(func() error { return stopOn(stop, r.director.Run(ctx, r.o.Faults, r.plan.PartDone)) })
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		_ = work.Wait() // the first error is the cause of ctx
		r.drain(ctx)
	}()
	r.supervise(stop, finished)
	switch cause := context.Cause(ctx); {
	case parent.Err() != nil, cause == nil: // the user's wish is no error
		return true, nil
	default:
		return true, cause
	}
}

func stopOn(stop context.CancelCauseFunc, err error) error {
	if err != nil {
		stop(err)
	}
	return err
}

// drain waits until no update is under way.
func (r *run) drain(ctx context.Context) {
	for {
		counts, changed := r.open.Counts()
		if counts.InFlight() == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// supervise returns when the run has finished, and stops it when a replica failed or nothing moves.
func (r *run) supervise(stop context.CancelCauseFunc, finished <-chan struct{}) {
	limit := 3*r.backing.ttl + 15*time.Second // longer than a replica can be frozen
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	failed := r.fleet.Failed()
	for {
		select {
		case <-finished:
			return
		case <-failed:
			stop(r.fleet.Err())
			failed = nil
		case <-tick.C:
			counts, _ := r.open.Counts()
			if still := r.journal.Now() - counts.Progress; counts.InFlight() > 0 && still > limit {
				stop(&StalledError{For: still, InFlight: counts.InFlight()})
			}
		}
	}
}
