package etcdcoord

import (
	"context"
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

// close ends the provider's background work, and frees no lease.
func (l *leases) close() {
	l.mu.Lock()
	provider := l.provider
	l.provider = nil
	l.mu.Unlock()
	if provider != nil {
		provider.Close()
	}
}

// Acquire implements LeaseProvider.
func (l *leases) Acquire(ctx context.Context, key, owner string, ttl time.Duration) (LeaseGrant, error) {
	p, err := l.use()
	if err != nil {
		return LeaseGrant{}, err
	}
	return p.Acquire(ctx, key, owner, ttl)
}

// Renew implements LeaseProvider.
func (l *leases) Renew(ctx context.Context, key, owner string, token Token, ttl time.Duration) (LeaseGrant, error) {
	p, err := l.use()
	if err != nil {
		return LeaseGrant{}, err
	}
	return p.Renew(ctx, key, owner, token, ttl)
}

// Release implements LeaseProvider.
func (l *leases) Release(ctx context.Context, key, owner string, token Token) error {
	p, err := l.use()
	if err != nil {
		return err
	}
	return p.Release(ctx, key, owner, token)
}
