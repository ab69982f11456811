package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// ledger is the protected resource and the judge: it knows who believes that it holds.
type ledger struct {
	watermark fencing.Watermark

	mu      sync.Mutex // guards the fields below
	belief  map[string]fencing.LeaseGrant
	granted int
	faults  []string
	enough  func() // called after so many grants
}

const enough = 120

// begin is called when key has been granted. No other owner may believe in an earlier grant now.
func (l *ledger) begin(g fencing.LeaseGrant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.watermark.Admit(g.Key, g.Token); err != nil {
		l.faults = append(l.faults, err.Error())
	}
	if before, ok := l.belief[g.Key]; ok && before.Owner != g.Owner && before.Left() > 0 {
		l.faults = append(l.faults, fmt.Sprintf("%q was granted to %s (%d) while %s (%d) believes for %v",
			g.Key, g.Owner, g.Token, before.Owner, before.Token, before.Left()))
	}
	l.belief[g.Key] = g
	if l.granted++; l.granted == enough {
		l.enough()
	}
}

// end is called before the key is given back.
func (l *ledger) end(g fencing.LeaseGrant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.belief[g.Key].Token == g.Token {
		delete(l.belief, g.Key)
	}
}

// Owners in several processes take, renew, release and abandon a few keys, while requests and
// answers are lost at random on every wire.
func TestNobodyIsGrantedWhatSomebodyBelievesInWhateverIsLost(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	until, stop := context.WithTimeout(t.Context(), 8*time.Second)
	defer stop()
	judge := &ledger{belief: make(map[string]fencing.LeaseGrant), enough: stop}
	var wg, stray sync.WaitGroup
	var wires []*wire
	var mu sync.Mutex // guards over
	over := false
	mayStray := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			stray.Add(1)
		}
		return !over
	}
	for process := range 3 {
		w, client := newWire(t)
		wires = append(wires, w)
		p := provider(t, client, prefix)
		lossy := func(ctx context.Context, send func(context.Context) error) error {
			switch n := rand.N(40); {
			case until.Err() != nil || n > 1:
				return send(ctx)
			case n == 0:
				return loseAnswer(ctx, send)
			default:
				if !mayStray() {
					return send(ctx)
				}
				go func() { // arrives when nobody waits for it any more
					defer stray.Done()
					<-ctx.Done()
					time.Sleep(time.Millisecond + rand.N(30*time.Millisecond))
					_ = send(context.WithoutCancel(ctx))
				}()
				<-ctx.Done()
				return ctx.Err()
			}
		}
		for _, request := range []string{read, write, revoke} {
			w.set(request, lossy)
		}
		for n := range 3 {
			wg.Go(func() { live(until, judge, p, fmt.Sprintf("owner %d.%d", process, n)) })
		}
	}
	wg.Wait()
	mu.Lock()
	over = true
	mu.Unlock()
	stray.Wait()
	require.Empty(t, judge.faults)
	t.Logf("%d grants and renewals, %d requests to write", judge.granted, wires[0].count(write)+wires[1].count(write)+wires[2].count(write))
	require.Greater(t, judge.granted, enough/10, "hardly anything was tried")
	d := newDirect(t, prefix)
	for _, w := range wires {
		d.nothingRemains(w.leases())
	}
}

// live is what one owner does. What it holds at the end runs out within a second.
func live(until context.Context, judge *ledger, p *fencing.EtcdLeases, owner string) {
	call := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), 40*time.Millisecond+rand.N(60*time.Millisecond))
	}
	for until.Err() == nil {
		key := fmt.Sprint("key ", rand.N(3))
		ctx, cancel := call()
		g, err := p.Acquire(ctx, key, owner, 100*time.Millisecond+rand.N(400*time.Millisecond))
		cancel()
		if err != nil {
			time.Sleep(rand.N(5 * time.Millisecond)) // the pace of a poll
			continue
		}
		judge.begin(g)
		for range rand.N(4) {
			time.Sleep(rand.N(g.Left()/2 + 1)) // at work
			ctx, cancel := call()
			ttl := 100*time.Millisecond + rand.N(400*time.Millisecond)
			asked := time.Now()
			renewed, err := p.Renew(ctx, key, owner, g.Token, ttl)
			cancel()
			switch {
			case err == nil:
				g = renewed
			case errors.Is(err, fencing.ErrLeaseLost):
				g.Until = asked.Add(-time.Hour)
			case g.Until.After(asked.Add(ttl)):
				g.Until = asked.Add(ttl) // no more than was asked for
			}
			if g.Left() == 0 {
				break
			}
			judge.begin(g)
		}
		judge.end(g)
		if rand.N(4) > 0 { // else abandoned
			ctx, cancel := call()
			_ = p.Release(ctx, key, owner, g.Token) // goes on by itself
			cancel()
		}
	}
}

// Close races with every verb, and nothing panics, hangs, or leaks.
func TestCloseWhileVerbsAreUnderWay(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	client := testetcd.Shared(t).Client(t)
	for range 10 {
		p := provider(t, client, prefix)
		var wg sync.WaitGroup
		for n := range 4 {
			owner := fmt.Sprint("owner ", n)
			wg.Go(func() {
				for {
					g, err := p.Acquire(t.Context(), "k", owner, 50*time.Millisecond)
					if errors.Is(err, fencing.ErrClosed) {
						return
					}
					if err == nil {
						_, _ = p.Renew(t.Context(), "k", owner, g.Token, 50*time.Millisecond)
						_ = p.Release(t.Context(), "k", owner, g.Token)
					}
				}
			})
		}
		time.Sleep(rand.N(20 * time.Millisecond)) // a random moment
		p.Close()
		wg.Wait()
	}
}
