package fencingtest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// names are legal, and each of them has been mistaken for another somewhere.
var names = []string{
	"room", "room/", "room/1", "room/1/x", "room//1", "roo", "ROOM", "/room", "/", ".", "..", "%", "%2F", "room%2F1",
	" ", "room ", "line\nbreak", "tab\t", "\"quoted\"", "{}", "a:b@c_d-e", "приве́т", "房间", "👩‍👩‍👧‍👦", "\u2028<&>",
	strings.Repeat("x", 512), strings.Repeat("x", 511), strings.Repeat("/", 512), strings.Repeat("é", 256),
}

var invalidNames = map[string]string{
	"empty": "", "NUL": "a\x00b", "513 bytes": strings.Repeat("x", 513), "not UTF-8": "a\xffb",
}

func badInputIsRefused(b *bench) {
	for what, bad := range invalidNames {
		refuses := func(key, owner string) {
			b.Helper()
			_, err := b.Provider.Acquire(b.ctx, key, owner, long)
			require.ErrorIs(b, err, fencing.ErrInvalidKey, "acquire, %s", what)
			_, err = b.Provider.Renew(b.ctx, key, owner, 1, long)
			require.ErrorIs(b, err, fencing.ErrInvalidKey, "renew, %s", what)
			require.ErrorIs(b, b.Provider.Release(b.ctx, key, owner, 1), fencing.ErrInvalidKey, "release, %s", what)
		}
		refuses(bad, "a")
		refuses("k", bad)
	}
	for _, ttl := range []time.Duration{0, -1, -time.Hour, math.MinInt64, fencing.MaxTTL + 1, math.MaxInt64} {
		_, err := b.Provider.Acquire(b.ctx, "k", "a", ttl)
		require.ErrorIs(b, err, fencing.ErrInvalidTTL, "acquire for %v", ttl)
		_, err = b.Provider.Renew(b.ctx, "k", "a", 1, ttl)
		require.ErrorIs(b, err, fencing.ErrInvalidTTL, "renew for %v", ttl)
	}
	g := b.acquire("k", "b", fencing.MaxTTL) // nothing of the above holds it
	_, err := b.Provider.Acquire(b.ctx, "k", "b", 0)
	require.ErrorIs(b, err, fencing.ErrInvalidTTL, "acquire for 0 by the holder")
	b.stillHeld(g)

	for _, name := range names { // every other name is legal, and comes back exactly
		g := b.acquire(name, name, long)
		b.release(name, name, b.renew(g, long).Token)
	}
}

func keysAreIndependent(b *bench) {
	grants := make(map[string]fencing.LeaseGrant)
	for i, name := range names {
		grants[name] = b.acquire(name, fmt.Sprintf("owner %d", i), long)
	}
	for i, name := range names {
		if i%2 == 0 {
			b.release(name, grants[name].Owner, grants[name].Token)
		}
	}
	for i, name := range names {
		if i%2 == 0 {
			b.acquire(name, "somebody else", long)
		} else {
			b.stillHeld(grants[name])
		}
	}
}

// oneHolderAtATime lets many owners take turns, as fast as they can, through both providers.
func oneHolderAtATime(b *bench) {
	const owners, turns = 6, 8
	var (
		inside atomic.Int32
		mu     sync.Mutex // guards last
		last   fencing.Token
		wg     sync.WaitGroup
		faults = make(chan string, owners)
	)
	turn := func(p fencing.LeaseProvider, owner string) string {
		g, err := p.Acquire(b.ctx, "k", owner, long)
		for errors.Is(err, fencing.ErrHeld) && b.ctx.Err() == nil {
			time.Sleep(time.Millisecond) // the pace of a poll, in real time
			g, err = p.Acquire(b.ctx, "k", owner, long)
		}
		if err != nil {
			return fmt.Sprintf("%s did not get it: %v", owner, err)
		}
		if n := inside.Add(1); n != 1 {
			return fmt.Sprintf("%d holders at a time", n)
		}
		time.Sleep(200 * time.Microsecond) // long enough for another one to come in
		mu.Lock()
		before := last
		last = g.Token
		mu.Unlock()
		inside.Add(-1)
		if g.Token <= before {
			return fmt.Sprintf("token %d was granted after %d", g.Token, before)
		}
		if err := p.Release(b.ctx, "k", owner, g.Token); err != nil {
			return err.Error()
		}
		return ""
	}
	for i := range owners {
		p := []fencing.LeaseProvider{b.Provider, b.Other}[i%2]
		wg.Go(func() {
			for range turns {
				if fault := turn(p, fmt.Sprintf("owner %d", i)); fault != "" {
					faults <- fault
					return
				}
			}
		})
	}
	wg.Wait()
	close(faults)
	for fault := range faults {
		b.Errorf("%s", fault)
	}
}
