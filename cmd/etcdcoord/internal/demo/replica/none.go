package replica

import (
	"context"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// none is no coordination at all: every turn is granted at once, everybody leads. It is what a bot
// does that is simply started three times.
type none struct{}

func (none) Start(context.Context) error                     { return nil }
func (none) Stop(context.Context) error                      { return nil }
func (none) Reserve(context.Context, string) (ticket, error) { return none{}, nil }
func (none) Cancel(context.Context) error                    { return nil }
func (none) Acquire(context.Context) (turn, error)           { return freeTurn{}, nil }

func (none) Lead(ctx context.Context, _ string) (leadership, error) { return freeTurn{}, ctx.Err() }

// freeTurn is what everybody gets from none, as a turn and as a leadership.
type freeTurn struct{}

func (freeTurn) Fence() fencing.Token          { return 0 }
func (freeTurn) Context() context.Context      { return context.Background() }
func (freeTurn) AssertHeld() error             { return nil }
func (freeTurn) Release(context.Context) error { return nil }
func (freeTurn) Resign(context.Context) error  { return nil }
