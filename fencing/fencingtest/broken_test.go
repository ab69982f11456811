package fencingtest_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/fencing/fencingtest"
)

// broken is a good provider with one verb replaced.
type broken struct {
	*fencingtest.Model
	acquire func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error)
	renew   func(ctx context.Context, key, owner string, token fencing.Token, ttl time.Duration) (fencing.LeaseGrant, error)
	release func(ctx context.Context, key, owner string, token fencing.Token) error
}

func (b broken) Acquire(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
	if b.acquire == nil {
		return b.Model.Acquire(ctx, key, owner, ttl)
	}
	return b.acquire(ctx, key, owner, ttl)
}

func (b broken) Renew(ctx context.Context, key, owner string, token fencing.Token, ttl time.Duration) (fencing.LeaseGrant, error) {
	if b.renew == nil {
		return b.Model.Renew(ctx, key, owner, token, ttl)
	}
	return b.renew(ctx, key, owner, token, ttl)
}

func (b broken) Release(ctx context.Context, key, owner string, token fencing.Token) error {
	if b.release == nil {
		return b.Model.Release(ctx, key, owner, token)
	}
	return b.release(ctx, key, owner, token)
}

// ledger remembers the latest grant of each key, as a careless provider might.
type ledger struct {
	mu    sync.Mutex
	grant map[string]fencing.LeaseGrant
}

func (l *ledger) note(g fencing.LeaseGrant, err error) (fencing.LeaseGrant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grant == nil {
		l.grant = make(map[string]fencing.LeaseGrant)
	}
	if err == nil {
		l.grant[g.Key] = g
	}
	return g, err
}

func (l *ledger) of(key string) fencing.LeaseGrant {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grant[key]
}

func (l *ledger) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.grant, key)
}

// faults are providers that break at least the law they are listed under.
var faults = []struct {
	law   int
	claim string
	make  func(m *fencingtest.Model) fencing.LeaseProvider
}{
	{1, "the holder believes for too long", believesTooLong},
	{2, "another owner gets what is held", stealsWhatIsHeld},
	{3, "an extension gets a new token", newTokenForTheOwner},
	{3, "an extension cannot end sooner", neverSooner},
	{4, "the token goes back after expiry", tokenGoesBack},
	{5, "renew does not look at the token", renewIgnoresTheToken},
	{5, "renew does not look at the owner", renewIgnoresTheOwner},
	{6, "renew revives an expired lease", renewRevives},
	{7, "a lease ends before its Until", endsEarly},
	{8, "a lease lives on after its Until", endsLate},
	{9, "release waits for the end", releaseDoesNothing},
	{10, "release frees whoever holds", releaseIgnoresTheHolder},
	{10, "release looks at the owner only", releaseIgnoresTheToken},
	{11, "an empty key is a key", acceptsEmptyKeys},
	{11, "a TTL of zero means the default", acceptsZeroTTL},
	{12, "keys are compared without case", foldsCase},
	{13, "release obeys an ended context", releaseObeysItsContext},
	{13, "acquire ignores an ended context", acquireIgnoresItsContext},
	{14, "two at the same moment both win", racy},
}

func TestEveryLawCatchesWhoBreaksIt(t *testing.T) {
	t.Parallel()
	caught := make(map[int]bool)
	for _, fault := range faults {
		caught[fault.law] = true
		t.Run(fault.claim, func(t *testing.T) {
			t.Parallel()
			var broke []string
			for _, law := range fencingtest.Laws() {
				complaints := fencingtest.Check(law, func(fencingtest.T) fencingtest.Harness { return onMovedClock(fault.make) })
				if len(complaints) > 0 {
					broke = append(broke, law.String())
				}
				if law.Number == fault.law {
					require.NotEmpty(t, complaints, "law %v was not broken", law)
					t.Log(strings.Join(strings.Fields(complaints[0]), " "))
				}
			}
			require.Less(t, len(broke), len(fencingtest.Laws()), "it breaks everything, which shows nothing")
			t.Log("breaks", broke)
		})
	}
	for _, law := range fencingtest.Laws() {
		require.True(t, caught[law.Number], "nobody breaks %v: can it fail?", law)
	}
}

// otherTTL keeps another time than it tells.
func otherTTL(m *fencingtest.Model, keeps func(asked time.Duration) time.Duration) fencing.LeaseProvider {
	tells := func(g fencing.LeaseGrant, err error, ttl time.Duration) (fencing.LeaseGrant, error) {
		if err == nil {
			g.Until = g.Until.Add(ttl - keeps(ttl))
		}
		return g, err
	}
	return broken{
		Model: m,
		acquire: func(ctx context.Context, key, owner string, ttl time.Duration) (fencing.LeaseGrant, error) {
			g, err := m.Acquire(ctx, key, owner, keeps(ttl))
			return tells(g, err, ttl)
		},
		renew: func(ctx context.Context, key, owner string, token fencing.Token, ttl time.Duration) (fencing.LeaseGrant, error) {
			g, err := m.Renew(ctx, key, owner, token, keeps(ttl))
			return tells(g, err, ttl)
		},
	}
}

func endsEarly(m *fencingtest.Model) fencing.LeaseProvider {
	return otherTTL(m, func(asked time.Duration) time.Duration { return asked - asked/10 })
}

func endsLate(m *fencingtest.Model) fencing.LeaseProvider {
	return otherTTL(m, func(asked time.Duration) time.Duration {
		if asked > 0 && asked < 10*time.Second {
			return 10 * time.Second // "etcd's minimum"
		}
		return asked
	})
}
