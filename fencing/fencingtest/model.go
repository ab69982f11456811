package fencingtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// Clock is a clock that stands still until it is moved. Its methods may be called concurrently.
type Clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

// NewClock returns a clock that stands at some moment.
func NewClock() *Clock { return &Clock{now: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)} }

// Now is where the clock stands.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Model is a LeaseProvider in memory, for unit tests of what uses one. It obeys every law and keeps
// nothing when the process ends. Its methods may be called concurrently.
type Model struct {
	now func() time.Time

	mu    sync.Mutex // guards the fields below
	last  fencing.Token
	holds map[string]fencing.LeaseGrant // also ended ones, until their key is granted again
}

var _ fencing.LeaseProvider = (*Model)(nil)

// NewModel returns a model in real time.
func NewModel() *Model { return NewModelAt(time.Now) }

// NewModelAt returns a model that lives in the time that now tells, that of a Clock for example. By
// another clock than the real one LeaseGrant.Left means nothing: compare Until with now.
func NewModelAt(now func() time.Time) *Model {
	return &Model{now: now, holds: make(map[string]fencing.LeaseGrant)}
}

// Acquire implements fencing.LeaseProvider.
func (m *Model) Acquire(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
	if err := checked(ctx, "acquire", key, owner, ttl); err != nil {
		return fencing.LeaseGrant{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	g, held := m.held(key, now)
	switch {
	case held && g.Owner != owner:
		return fencing.LeaseGrant{}, &fencing.HeldError{Key: key, Owner: g.Owner, Token: g.Token, TTL: g.Until.Sub(now)}
	case !held:
		m.last++
		g = fencing.LeaseGrant{Key: key, Owner: owner, Token: m.last}
	}
	g.Until = now.Add(ttl)
	m.holds[key] = g
	return g, nil
}

// Renew implements fencing.LeaseProvider.
func (m *Model) Renew(ctx context.Context, key, owner string, token fencing.Token, ttl time.Duration) (fencing.LeaseGrant, error) {
	if err := checked(ctx, "renew", key, owner, ttl); err != nil {
		return fencing.LeaseGrant{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	g, held := m.held(key, now)
	if !held || g.Owner != owner || g.Token != token {
		return fencing.LeaseGrant{}, &fencing.LeaseLostError{Key: key, Token: token, Reason: fencing.Expired}
	}
	g.Until = now.Add(ttl)
	m.holds[key] = g
	return g, nil
}

// Release implements fencing.LeaseProvider.
func (m *Model) Release(_ context.Context, key, owner string, token fencing.Token) error {
	if err := fencing.CheckLease(key, owner); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.holds[key]; g.Owner == owner && g.Token == token {
		delete(m.holds, key)
	}
	return nil
}

// held is the hold that is in force now. The caller holds mu.
func (m *Model) held(key string, now time.Time) (fencing.LeaseGrant, bool) {
	g, ok := m.holds[key]
	return g, ok && now.Before(g.Until)
}

func checked(ctx context.Context, op, key, owner string, ttl time.Duration) error {
	if err := fencing.CheckLease(key, owner); err != nil {
		return err
	}
	if err := fencing.CheckTTL(ttl); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("model: %w", fencing.Unavailable(ctx, op, key, err))
	}
	return nil
}
