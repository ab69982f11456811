package fencing

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/andresayac/botmesh-etcd/internal/clock"
	"github.com/andresayac/botmesh-etcd/internal/keys"
)

// LeaseProvider grants keys to owners for a limited time, each grant of a key under a larger token.
//
// An owner is a name, and whoever uses it is that owner: it must be unique per process, or per
// whatever in a process must exclude the rest of it. A holder believes in its grant until
// LeaseGrant.Until and no longer, and whatever it writes carries the token.
//
// The laws, each a sub-test of fencingtest.Run:
//
//  1. A free key is granted at once to who asks, under a token larger than 0, until at least now + ttl.
//  2. While it is held, Acquire by another owner fails with ErrHeld and leaves the hold as it is.
//  3. Acquire by the present owner keeps the token and sets the end to now + ttl, later or sooner.
//  4. Every new grant of a key has a larger token than any before, by whatever owner, across
//     release and expiry.
//  5. Renew sets the end to now + ttl under the same token, for the owner and token that hold. For
//     any other it fails with a *LeaseLostError and changes nothing.
//  6. What has ended stays ended: Renew after expiry or release fails with a *LeaseLostError whose
//     reason is Expired, and takes nothing.
//  7. Nobody else is granted the key before the holder's Until, unless the holder releases it.
//  8. Soon after Until the key is free, though nobody does anything, also for a TTL of milliseconds.
//  9. Release frees the key at once for others. Doing it again is harmless.
//  10. Release with an owner or token that does not hold does nothing and returns nil.
//  11. An invalid key or owner is refused with ErrInvalidKey, a TTL of zero or less, or one that is
//     too large, with ErrInvalidTTL; nothing is left behind. Every other name is legal.
//  12. No key has to do with another, whatever their names have in common.
//  13. With a context that has already ended Acquire and Renew fail and change nothing. Release
//     works all the same, on time of its own.
//  14. Under any concurrency there is one holder at a time, and no two grants share a token.
//
// Errors that are none of the above are *CoordinationUnavailableError, or wrap the cause of the
// caller's cancelled context. After one of them the outcome is unknown: acquire or release again,
// as the same owner, which is always right.
type LeaseProvider interface {
	// Acquire grants key when it is free or expired, under a new, larger token; it extends it under
	// the same token when owner holds it. Otherwise it fails with ErrHeld. It does not wait.
	Acquire(ctx context.Context, key, owner string, ttl time.Duration) (LeaseGrant, error)

	// Renew extends only while owner holds key with token; otherwise it fails with a *LeaseLostError.
	Renew(ctx context.Context, key, owner string, token Token, ttl time.Duration) (LeaseGrant, error)

	// Release frees only what owner holds with token; otherwise it does nothing and returns nil.
	Release(ctx context.Context, key, owner string, token Token) error
}

// LeaseGrant is what a holder has been given.
type LeaseGrant struct {
	Key, Owner string
	Token      Token

	// Until is how long the holder may believe that it holds: a moment of this process's
	// monotonic clock, counted from before the request was sent, so nobody else can be granted the
	// key earlier. It means nothing in another process.
	Until time.Time

	// boot is Until by a clock that goes on while the machine is suspended, which Go's monotonic
	// clock on Linux does not. 0: not known.
	boot time.Duration
}

// Left is the time left until Until, 0 when it has passed. It also counts time during which the
// machine was suspended.
func (g LeaseGrant) Left() time.Duration {
	left := time.Until(g.Until)
	if g.boot != 0 {
		left = min(left, g.boot-clock.System())
	}
	return max(left, 0)
}

// stopwatch is a moment before a request was sent, from which a grant is counted.
type stopwatch struct {
	wall time.Time // with its monotonic reading
	boot time.Duration
}

func startStopwatch() stopwatch { return stopwatch{wall: time.Now(), boot: clock.System()} }

// grant is a hold that began with the stopwatch.
func (s stopwatch) grant(key, owner string, token Token, ttl time.Duration) LeaseGrant {
	g := LeaseGrant{Key: key, Owner: owner, Token: token, Until: s.wall.Add(ttl), boot: s.boot + ttl}
	if g.boot < ttl { // centuries
		g.boot = math.MaxInt64
	}
	return g
}

// MaxTTL is the longest time to live that etcd accepts, about 285 years.
const MaxTTL = 9_000_000_000 * time.Second

// CheckLease refuses, with ErrInvalidKey, what cannot be a lease's key or owner. It is meant for
// those who write a LeaseProvider of their own.
func CheckLease(key, owner string) error {
	if err := keys.Check("key", key); err != nil {
		return err
	}
	return keys.Check("owner", owner)
}

// CheckTTL refuses, with ErrInvalidTTL, what cannot be a lease's time to live.
func CheckTTL(ttl time.Duration) error {
	switch {
	case ttl <= 0:
		return fmt.Errorf("%w: %v, use more than 0", ErrInvalidTTL, ttl)
	case ttl > MaxTTL:
		return fmt.Errorf("%w: %v, etcd accepts at most %v", ErrInvalidTTL, ttl, MaxTTL)
	}
	return nil
}
