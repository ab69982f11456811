package fencingtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
)

func freeKeyIsGranted(b *bench) {
	for _, ttl := range []time.Duration{long, 24 * long, 90*time.Second + 1} {
		key := "free for " + ttl.String()
		before := b.Now()
		g := b.acquire(key, "a", ttl)
		b.within(g, before, b.Now(), ttl)
	}
}

func heldKeyIsRefusedToOthers(b *bench) {
	g := b.acquire("k", "a", long)
	b.refused("k", "b")
	b.refused("k", "A")
	b.refused("k", "a/")
	b.stillHeld(g)
}

func ownerSetsANewEnd(b *bench) {
	first := b.acquire("k", "a", long)
	for name, p := range map[string]fencing.LeaseProvider{"later": b.Provider, "later, in another process": b.Other} {
		before := b.Now()
		again, err := p.Acquire(b.ctx, "k", "a", 2*long)
		require.NoError(b, err, name)
		b.isGrant(again, "k", "a")
		require.Equal(b, first.Token, again.Token, "the token of who holds already, %s", name)
		b.within(again, before, b.Now(), 2*long)
		b.refused("k", "b")
	}
	before := b.Now()
	sooner := b.acquire("k", "a", b.TTL)
	require.Equal(b, first.Token, sooner.Token, "the token of who holds already, sooner")
	b.within(sooner, before, b.Now(), b.TTL)
	b.successor(sooner, "b")
}

func renewIsForTheHolderOnly(b *bench) {
	g := b.acquire("k", "a", long)
	for _, p := range []fencing.LeaseProvider{b.Provider, b.Other} {
		before := b.Now()
		b.within(b.renewBy(p, g, 2*long), before, b.Now(), 2*long)
	}
	strangers := func(ttl time.Duration) {
		b.Helper()
		b.lost(b.Provider, "k", "b", g.Token, ttl)
		b.lost(b.Other, "k", "b", g.Token, ttl)
		for _, token := range []fencing.Token{g.Token + 1, g.Token - 1, 0, -1} {
			b.lost(b.Provider, "k", "a", token, ttl)
		}
		b.lost(b.Provider, "never held", "a", g.Token, ttl)
	}
	strangers(time.Millisecond) // would end the hold
	b.Sleep(b.TTL / 4)
	b.stillHeld(g)
	ending := b.renew(g, b.TTL)
	strangers(long) // would prolong it
	b.successor(ending, "c")
	_, err := b.Provider.Acquire(b.ctx, "never held", "b", long)
	require.NoError(b, err, "a key that was only renewed by who never held it")
}

func releaseFreesAtOnce(b *bench) {
	g := b.acquire("k", "a", long)
	b.release("k", "a", g.Token)
	next, err := b.Other.Acquire(b.ctx, "k", "b", long)
	require.NoError(b, err, "acquire right after release")
	b.isGrant(next, "k", "b")
	b.release("k", "a", g.Token)
	b.stillHeld(next)

	// In another process, and after an extension.
	require.NoError(b, b.Other.Release(b.ctx, "k", "b", b.renew(next, 2*long).Token))
	b.acquire("k", "c", long)
}

func releaseTouchesItsOwnHoldOnly(b *bench) {
	b.release("k", "a", 1)
	b.release("k", "a", 0)
	first := b.acquire("k", "a", long)
	for _, token := range []fencing.Token{first.Token + 1, first.Token - 1, 0, -1} {
		b.release("k", "a", token)
	}
	b.release("k", "b", first.Token)
	b.release("k2", "a", first.Token)
	b.stillHeld(first)

	b.release("k", "a", first.Token)
	second := b.acquire("k", "a", long)
	b.release("k", "a", first.Token) // late, same owner
	b.stillHeld(second)
	b.release("k", "a", second.Token)
	third := b.acquire("k", "b", long)
	b.release("k", "a", second.Token) // late, another owner holds
	require.NoError(b, b.Other.Release(b.ctx, "k", "a", second.Token))
	b.stillHeld(third)
}
