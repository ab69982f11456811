package fencingtest

import (
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
)

func tokensOnlyRise(b *bench) {
	var last fencing.Token
	rises := func(g fencing.LeaseGrant) fencing.LeaseGrant {
		b.Helper()
		require.Greater(b, g.Token, last, "the token granted to %s", g.Owner)
		last = g.Token
		return g
	}
	g := rises(b.acquire("k", "a", long))
	b.release("k", "a", g.Token)
	g = rises(b.acquire("k", "a", long))
	b.release("k", "a", g.Token)
	g = rises(b.acquire("k", "b", b.TTL))
	g = rises(b.successor(g, "c")) // after expiry
	require.NoError(b, b.Other.Release(b.ctx, "k", "c", g.Token))
	g = rises(b.acquire("k", "a", b.TTL))
	b.sleepUntil(g.Until.Add(b.Slack))
	g = rises(b.acquire("k", "a", long)) // after expiry, the same owner
	b.release("k", "a", g.Token)
	rises(b.acquire("k", "d", long))
}

func whatHasEndedStaysEnded(b *bench) {
	g := b.acquire("expired", "a", b.TTL)
	b.sleepUntil(g.Until.Add(b.Slack))
	b.lost(b.Provider, "expired", "a", g.Token, long)
	b.lost(b.Other, "expired", "a", g.Token, long)
	b.acquire("expired", "b", long)
	b.lost(b.Provider, "expired", "a", g.Token, long)

	g = b.acquire("released", "a", long)
	b.release("released", "a", g.Token)
	b.lost(b.Provider, "released", "a", g.Token, long)
	b.acquire("released", "b", long)
	b.lost(b.Provider, "released", "a", g.Token, long)
}

func nobodyElseBeforeUntil(b *bench) {
	g := b.acquire("k", "a", b.TTL)
	g = b.successor(g, "b")

	// Renewed while somebody else keeps asking.
	ending := b.renewBy(b.Other, g, b.TTL)
	b.sleepUntil(ending.Until.Add(-b.TTL / 2))
	b.refused("k", "c")
	ending = b.renew(ending, 2*b.TTL)
	b.successor(ending, "c")
}

func leasesEndByThemselves(b *bench) {
	var last fencing.LeaseGrant
	for _, ttl := range []time.Duration{b.TTL, b.TTL + 7*time.Millisecond, 2*b.TTL + 1} {
		last = b.acquire("for "+ttl.String(), "a", ttl)
	}
	extended := b.renew(b.acquire("extended", "a", long), b.TTL)
	// Nobody does anything meanwhile.
	b.sleepUntil(last.Until.Add(b.Slack))
	b.sleepUntil(extended.Until.Add(b.Slack))
	for _, key := range []string{"for " + b.TTL.String(), "for " + (b.TTL + 7*time.Millisecond).String(), last.Key, "extended"} {
		_, err := b.Other.Acquire(b.ctx, key, "b", long)
		require.NoError(b, err, "%q after its end", key)
	}
}

// endedContexts are a context that was cancelled and one whose deadline has passed, each with what
// the error of a verb must wrap.
func (b *bench) endedContexts() map[error]context.Context {
	cause := errors.New("the user gave up")
	cancelled, cancel := context.WithCancelCause(b.ctx)
	cancel(cause)
	late, end := context.WithDeadline(b.ctx, time.Now().Add(-time.Second))
	b.Cleanup(end)
	return map[error]context.Context{cause: cancelled, context.DeadlineExceeded: late}
}

func endedContextsChangeNothing(b *bench) {
	for wrapped, ended := range b.endedContexts() {
		key := "k: " + wrapped.Error()
		g, err := b.Provider.Acquire(ended, key, "a", long)
		require.ErrorIs(b, err, wrapped, "acquire")
		require.Zero(b, g, "the grant beside the error")
		if wrapped == context.DeadlineExceeded {
			require.ErrorIs(b, err, fencing.ErrUnavailable)
		}
		held := b.acquire(key, "b", b.TTL) // it is free

		g, err = b.Provider.Renew(ended, key, "b", held.Token, long)
		require.ErrorIs(b, err, wrapped, "renew")
		require.Zero(b, g, "the grant beside the error")
		_, err = b.Provider.Acquire(ended, key, "b", long)
		require.ErrorIs(b, err, wrapped, "acquire by the holder")
		next := b.successor(held, "c") // its end has not moved

		require.NoError(b, b.Provider.Release(ended, key, "c", next.Token), "release")
		b.acquire(key, "d", long)
	}
}
