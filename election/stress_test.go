package election_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/election"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// stage checks from outside that one leads at a time and that fences rise.
type stage struct {
	on      atomic.Int64 // leaders now
	fence   atomic.Int64 // of the last one
	entered atomic.Int64
}

func (s *stage) play(t *testing.T, l *election.Leadership) {
	if n := s.on.Add(1); n != 1 {
		t.Errorf("%d lead %q at the same time", n, l.Name())
	}
	if before := s.fence.Swap(int64(l.Fence())); before >= int64(l.Fence()) {
		t.Errorf("fence %v of %q after %d", l.Fence(), l.Name(), before)
	}
	s.entered.Add(1)
	time.Sleep(rand.N(2 * time.Millisecond))
	s.on.Add(-1)
}

// Two replicas and a tap that loses answers, several callers each that give up at random: at most one
// leads, everybody gets on, and nothing is left behind.
func TestUnderStressOneLeadsAndNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	prefix, tp := testetcd.Prefix(t), &tap{}
	a := join(t, tp.client(t, testetcd.Shared(t)), prefix, "a")
	b := join(t, testetcd.Shared(t).Client(t), prefix, "b")
	for _, what := range []trick{loseAnswer, loseBoth, keepBack} {
		tp.play(what, func(r *txnRequest) bool { return len(r.Success) > 0 && rand.N(8) == 0 })
		stages := []*stage{{}, {}}
		var wg sync.WaitGroup
		for caller := range 12 {
			who := []*replica{a, b}[caller%2]
			wg.Go(func() {
				for turn := range 12 {
					i := (caller + turn) % len(stages)
					compete(t, who, fmt.Sprint("n", i), stages[i], caller == 2 || caller == 3)
				}
			})
		}
		wg.Wait()
		tp.stop()
		require.NoError(t, tp.deliver())
		for i, s := range stages {
			require.NotZero(t, s.entered.Load())
			eventually(t, "nothing is left", func() bool {
				return len(candidates(t, b.client, b.schema, fmt.Sprint("n", i))) == 0
			})
			l, err := b.TryLead(t.Context(), fmt.Sprint("n", i))
			require.NoError(t, err)
			require.NoError(t, l.Resign(t.Context()))
		}
	}
}

func compete(t *testing.T, who *replica, name string, s *stage, try bool) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if rand.N(4) == 0 {
		time.AfterFunc(rand.N(3*time.Millisecond), cancel)
	}
	lead := who.Lead
	if try {
		lead = who.TryLead
	}
	l, err := lead(ctx, name)
	switch {
	case err == nil:
		s.play(t, l)
		if err := l.Resign(ctx); err != nil && !errors.Is(err, fencing.ErrUnavailable) {
			t.Errorf("resign: %v", err)
		}
	case errors.Is(err, context.Canceled):
	case try && (errors.Is(err, election.ErrNotElected) || errors.Is(err, fencing.ErrUnavailable)):
	default:
		t.Errorf("lead: %v", err)
	}
}
