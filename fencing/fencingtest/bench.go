package fencingtest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// bench is what a law works with: the harness, and the steps that laws have in common.
type bench struct {
	T
	Harness
	ctx context.Context
}

// long is the TTL of a hold that must not end during a law.
const long = time.Hour

// acquire is an Acquire that must succeed.
func (b *bench) acquire(key, owner string, ttl time.Duration) fencing.LeaseGrant {
	b.Helper()
	g, err := b.Provider.Acquire(b.ctx, key, owner, ttl)
	require.NoError(b, err, "%s acquires %q", owner, key)
	b.isGrant(g, key, owner)
	return g
}

// renew is a Renew that must succeed under the same token.
func (b *bench) renew(g fencing.LeaseGrant, ttl time.Duration) fencing.LeaseGrant {
	b.Helper()
	return b.renewBy(b.Provider, g, ttl)
}

// renewBy is renew by that provider.
func (b *bench) renewBy(p fencing.LeaseProvider, g fencing.LeaseGrant, ttl time.Duration) fencing.LeaseGrant {
	b.Helper()
	renewed, err := p.Renew(b.ctx, g.Key, g.Owner, g.Token, ttl)
	require.NoError(b, err, "%s renews %q with %d", g.Owner, g.Key, g.Token)
	b.isGrant(renewed, g.Key, g.Owner)
	require.Equal(b, g.Token, renewed.Token, "the token after renewal")
	return renewed
}

// release is a Release that must return nil.
func (b *bench) release(key, owner string, token fencing.Token) {
	b.Helper()
	require.NoError(b, b.Provider.Release(b.ctx, key, owner, token), "%s releases %q with %d", owner, key, token)
}

func (b *bench) isGrant(g fencing.LeaseGrant, key, owner string) {
	b.Helper()
	require.Equal(b, key, g.Key, "the key of the grant")
	require.Equal(b, owner, g.Owner, "the owner of the grant")
	require.Positive(b, g.Token, "the token of the grant")
}

// within checks that g, asked for between before and after, ends when it should.
func (b *bench) within(g fencing.LeaseGrant, before, after time.Time, ttl time.Duration) {
	b.Helper()
	require.False(b, g.Until.Before(before.Add(ttl)), "Until is %v too early", before.Add(ttl).Sub(g.Until))
	require.False(b, g.Until.After(after.Add(ttl)), "Until is %v too late", g.Until.Sub(after.Add(ttl)))
}

// refused checks that the key is held by somebody else, for both providers.
func (b *bench) refused(key, owner string) {
	b.Helper()
	for name, p := range map[string]fencing.LeaseProvider{"the provider": b.Provider, "the other provider": b.Other} {
		g, err := p.Acquire(b.ctx, key, owner, long)
		require.ErrorIs(b, err, fencing.ErrHeld, "%s gives %q to %s", name, key, owner)
		require.Zero(b, g, "the grant beside ErrHeld")
	}
}

// stillHeld checks that g is in force, with neither its owner's help nor its Until touched.
func (b *bench) stillHeld(g fencing.LeaseGrant) {
	b.Helper()
	b.refused(g.Key, "somebody else")
	b.renew(g, long)
}

// lost checks a Renew that must fail.
func (b *bench) lost(p fencing.LeaseProvider, key, owner string, token fencing.Token, ttl time.Duration) {
	b.Helper()
	g, err := p.Renew(b.ctx, key, owner, token, ttl)
	var lost *fencing.LeaseLostError
	require.ErrorAs(b, err, &lost, "%s renews %q with %d", owner, key, token)
	require.ErrorIs(b, err, fencing.ErrLeaseLost)
	require.Equal(b, fencing.Expired, lost.Reason)
	require.Equal(b, key, lost.Key)
	require.Equal(b, token, lost.Token)
	require.Zero(b, g, "the grant beside the error")
}

// sleepUntil returns at or after the moment.
func (b *bench) sleepUntil(moment time.Time) {
	for left := moment.Sub(b.Now()); left > 0; left = moment.Sub(b.Now()) {
		b.Sleep(left)
	}
}

// successor asks for g's key from another process, again and again, and returns the first grant. It
// checks that this comes neither before g's Until nor later than it may.
func (b *bench) successor(g fencing.LeaseGrant, owner string) fencing.LeaseGrant {
	b.Helper()
	for {
		asked := b.Now()
		next, err := b.Other.Acquire(b.ctx, g.Key, owner, long)
		now := b.Now()
		if err == nil {
			b.isGrant(next, g.Key, owner)
			require.False(b, now.Before(g.Until), "%s was granted %q %v before the holder's Until", owner, g.Key, g.Until.Sub(now))
			return next
		}
		require.True(b, errors.Is(err, fencing.ErrHeld), "%s asks for %q: %v", owner, g.Key, err)
		require.False(b, asked.After(g.Until.Add(b.Slack)), "%q is still held %v after the holder's Until", g.Key, asked.Sub(g.Until))
		b.Sleep(5 * time.Millisecond)
	}
}
