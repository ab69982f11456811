package replica

import (
	"context"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// coordinator is what the bot needs. There are two: etcd's, and none.
type coordinator interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Reserve(ctx context.Context, key string) (ticket, error)
	Lead(ctx context.Context, name string) (leadership, error)
}

type ticket interface {
	Acquire(ctx context.Context) (turn, error)
	Cancel(ctx context.Context) error
}

type turn interface {
	Fence() fencing.Token
	Context() context.Context
	AssertHeld() error
	Release(ctx context.Context) error
}

type leadership interface {
	Fence() fencing.Token
	Context() context.Context
	Resign(ctx context.Context) error
}
