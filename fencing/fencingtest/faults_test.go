package fencingtest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/fencing/fencingtest"
)

func believesTooLong(m *fencingtest.Model) fencing.LeaseProvider {
	return broken{Model: m, acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
		g, err := m.Acquire(ctx, key, owner, ttl)
		if err == nil {
			g.Until = g.Until.Add(time.Millisecond)
		}
		return g, err
	}}
}

func stealsWhatIsHeld(m *fencingtest.Model) fencing.LeaseProvider {
	return broken{Model: m, acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
		g, err := m.Acquire(ctx, key, owner, ttl)
		var held *fencing.HeldError
		if errors.As(err, &held) {
			_ = m.Release(ctx, key, held.Owner, held.Token)
			return m.Acquire(ctx, key, owner, ttl)
		}
		return g, err
	}}
}

func newTokenForTheOwner(m *fencingtest.Model) fencing.LeaseProvider {
	var l ledger
	return broken{Model: m, acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
		if ctx.Err() == nil && ttl > 0 {
			_ = m.Release(ctx, key, owner, l.of(key).Token)
		}
		return l.note(m.Acquire(ctx, key, owner, ttl))
	}}
}

func neverSooner(m *fencingtest.Model) fencing.LeaseProvider {
	var l ledger
	return broken{Model: m, acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
		before := l.of(key)
		g, err := m.Acquire(ctx, key, owner, ttl)
		if err == nil && g.Token == before.Token && before.Until.After(g.Until) {
			return m.Renew(ctx, key, owner, g.Token, ttl+before.Until.Sub(g.Until))
		}
		return l.note(g, err)
	}}
}

// tokenGoesBack counts the tokens of a key beside its lease, so that both go together.
func tokenGoesBack(m *fencingtest.Model) fencing.LeaseProvider {
	var l ledger
	back := make(map[string]fencing.Token) // key: what is taken off its tokens
	var mu sync.Mutex
	taken := func(key string) fencing.Token {
		mu.Lock()
		defer mu.Unlock()
		return back[key]
	}
	return broken{
		Model: m,
		acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
			before := l.of(key)
			g, err := l.note(m.Acquire(ctx, key, owner, ttl))
			if err == nil && before.Token != 0 && g.Token != before.Token { // not released: it had expired
				mu.Lock()
				back[key] = g.Token - 1
				mu.Unlock()
			}
			if err == nil {
				g.Token -= taken(key)
			}
			return g, err
		},
		renew: func(ctx context.Context, key, owner string, token fencing.Token, ttl time.Duration) (fencing.LeaseGrant, error) {
			g, err := m.Renew(ctx, key, owner, token+taken(key), ttl)
			var lost *fencing.LeaseLostError
			if errors.As(err, &lost) {
				lost.Token = token
			}
			if err == nil {
				g.Token = token
			}
			return g, err
		},
		release: func(ctx context.Context, key, owner string, token fencing.Token) error {
			if g := l.of(key); g.Owner == owner && g.Token == token+taken(key) {
				l.forget(key)
			}
			return m.Release(ctx, key, owner, token+taken(key))
		},
	}
}

func renewIgnoresTheToken(m *fencingtest.Model) fencing.LeaseProvider {
	var l ledger
	return broken{
		Model: m,
		acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
			return l.note(m.Acquire(ctx, key, owner, ttl))
		},
		renew: func(ctx context.Context, key, owner string, token fencing.Token, ttl time.Duration) (fencing.LeaseGrant, error) {
			if g := l.of(key); g.Owner == owner {
				token = g.Token
			}
			return m.Renew(ctx, key, owner, token, ttl)
		},
	}
}

func renewIgnoresTheOwner(m *fencingtest.Model) fencing.LeaseProvider {
	var l ledger
	return broken{
		Model: m,
		acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
			return l.note(m.Acquire(ctx, key, owner, ttl))
		},
		renew: func(ctx context.Context, key, owner string, token fencing.Token, ttl time.Duration) (fencing.LeaseGrant, error) {
			if g := l.of(key); g.Token == token && owner != "" {
				owner = g.Owner
			}
			return m.Renew(ctx, key, owner, token, ttl)
		},
	}
}

func renewRevives(m *fencingtest.Model) fencing.LeaseProvider {
	var l ledger
	return broken{
		Model: m,
		acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
			return l.note(m.Acquire(ctx, key, owner, ttl))
		},
		renew: func(ctx context.Context, key, owner string, token fencing.Token, ttl time.Duration) (fencing.LeaseGrant, error) {
			g, err := m.Renew(ctx, key, owner, token, ttl)
			if last := l.of(key); errors.Is(err, fencing.ErrLeaseLost) && last.Owner == owner && last.Token == token {
				if g, again := m.Acquire(ctx, key, owner, ttl); again == nil {
					return g, nil
				}
			}
			return g, err
		},
		release: func(ctx context.Context, key, owner string, token fencing.Token) error {
			if l.of(key).Token == token {
				l.forget(key)
			}
			return m.Release(ctx, key, owner, token)
		},
	}
}

func releaseDoesNothing(m *fencingtest.Model) fencing.LeaseProvider {
	return broken{Model: m, release: func(_ context.Context, key, owner string, _ fencing.Token) error {
		return fencing.CheckLease(key, owner)
	}}
}

func releaseIgnoresTheHolder(m *fencingtest.Model) fencing.LeaseProvider {
	var l ledger
	return broken{
		Model: m,
		acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
			return l.note(m.Acquire(ctx, key, owner, ttl))
		},
		release: func(ctx context.Context, key, owner string, token fencing.Token) error {
			if g := l.of(key); g.Token != 0 && fencing.CheckLease(key, owner) == nil {
				owner, token = g.Owner, g.Token
			}
			return m.Release(ctx, key, owner, token)
		},
	}
}

func releaseIgnoresTheToken(m *fencingtest.Model) fencing.LeaseProvider {
	var l ledger
	return broken{
		Model: m,
		acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
			return l.note(m.Acquire(ctx, key, owner, ttl))
		},
		release: func(ctx context.Context, key, owner string, token fencing.Token) error {
			if g := l.of(key); g.Owner == owner {
				token = g.Token
			}
			return m.Release(ctx, key, owner, token)
		},
	}
}

func acceptsEmptyKeys(m *fencingtest.Model) fencing.LeaseProvider {
	return broken{Model: m, acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
		if key == "" {
			key = "default"
		}
		return m.Acquire(ctx, key, owner, ttl)
	}}
}

func acceptsZeroTTL(m *fencingtest.Model) fencing.LeaseProvider {
	return broken{Model: m, acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
		if ttl == 0 {
			ttl = time.Minute
		}
		return m.Acquire(ctx, key, owner, ttl)
	}}
}

func foldsCase(m *fencingtest.Model) fencing.LeaseProvider {
	as := func(key string, g fencing.LeaseGrant, err error) (fencing.LeaseGrant, error) {
		var lost *fencing.LeaseLostError
		if errors.As(err, &lost) {
			lost.Key = key
		}
		if err == nil {
			g.Key = key
		}
		return g, err
	}
	return broken{
		Model: m,
		acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
			g, err := m.Acquire(ctx, fold(key), owner, ttl)
			return as(key, g, err)
		},
		renew: func(ctx context.Context, key, owner string, token fencing.Token, ttl time.Duration) (fencing.LeaseGrant, error) {
			g, err := m.Renew(ctx, fold(key), owner, token, ttl)
			return as(key, g, err)
		},
		release: func(ctx context.Context, key, owner string, token fencing.Token) error {
			return m.Release(ctx, fold(key), owner, token)
		},
	}
}

// fold leaves alone what is no UTF-8, which strings.ToLower would mend.
func fold(key string) string {
	if fencing.CheckLease(key, "a") != nil {
		return key
	}
	return strings.ToLower(key)
}

func releaseObeysItsContext(m *fencingtest.Model) fencing.LeaseProvider {
	return broken{Model: m, release: func(ctx context.Context, key, owner string, token fencing.Token) error {
		if ctx.Err() != nil {
			return fencing.Unavailable(ctx, "release", key, ctx.Err())
		}
		return m.Release(ctx, key, owner, token)
	}}
}

func acquireIgnoresItsContext(m *fencingtest.Model) fencing.LeaseProvider {
	return broken{Model: m, acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
		return m.Acquire(context.WithoutCancel(ctx), key, owner, ttl)
	}}
}

// racy looks first and takes later; who looks in between is not seen.
func racy(m *fencingtest.Model) fencing.LeaseProvider {
	thief := stealsWhatIsHeld(m)
	var inside atomic.Int32
	return broken{Model: m, acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
		defer inside.Add(-1)
		others := inside.Add(1) > 1
		time.Sleep(50 * time.Microsecond) // long enough for others to look as well
		if others {
			return thief.Acquire(ctx, key, owner, ttl)
		}
		return m.Acquire(ctx, key, owner, ttl)
	}}
}
