package etcdcoord

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// leases is the LeaseProvider of a coordinator: a fresh provider for every time it is started.
type leases struct {
	c        *Coordinator
	mu       sync.Mutex // guards the field below
	provider *fencing.EtcdLeases
}

// use gives the provider to work with, which is made when it is used for the first time.
func (l *leases) use() (*fencing.EtcdLeases, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c.mu.Lock()
	state := l.c.state
	l.c.mu.Unlock()
	switch {
	case state == isNew:
		return nil, ErrNotStarted
	case state == isStopped:
		return nil, ErrStopped
	case l.provider != nil:
		return l.provider, nil
	}
	provider, err := fencing.NewLeaseProvider(l.c.client, fencing.LeaseConfig{
		Prefix: l.c.cfg.Prefix, RequestTimeout: l.c.cfg.RequestTimeout, Logger: l.c.cfg.Logger,
	})
	l.provider = provider
	return provider, err
}

// detach gives the provider away, to be closed. It belongs to what was started: what is started
// next, perhaps before this one is closed, has another.
func (l *leases) detach() *fencing.EtcdLeases {
	l.mu.Lock()
	defer l.mu.Unlock()
	provider := l.provider
	l.provider = nil
	return provider
}

// stopped is what a verb says that Stop overtook. A Release that Stop did not wait for is not
// confirmed all the same.
func stopped(err error) error {
	switch {
	case !errors.Is(err, fencing.ErrClosed):
		return err
	case errors.Is(err, ErrUnavailable):
		return errors.Join(ErrStopped, err)
	}
	return ErrStopped
}

// Acquire implements LeaseProvider.
func (l *leases) Acquire(ctx context.Context, key, owner string, ttl time.Duration) (LeaseGrant, error) {
	p, err := l.use()
	if err != nil {
		return LeaseGrant{}, err
	}
	g, err := p.Acquire(ctx, key, owner, ttl)
	return g, stopped(err)
}

// Renew implements LeaseProvider.
func (l *leases) Renew(ctx context.Context, key, owner string, token Token, ttl time.Duration) (LeaseGrant, error) {
	p, err := l.use()
	if err != nil {
		return LeaseGrant{}, err
	}
	g, err := p.Renew(ctx, key, owner, token, ttl)
	return g, stopped(err)
}

// Release implements LeaseProvider.
func (l *leases) Release(ctx context.Context, key, owner string, token Token) error {
	p, err := l.use()
	if err != nil {
		return err
	}
	return stopped(p.Release(ctx, key, owner, token))
}
