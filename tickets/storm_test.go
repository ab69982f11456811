package tickets_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// TestAnyMixOfFaultsKeepsThePromises lets every fifth request of three replicas go wrong in some
// way, while each of them reserves, acquires, cancels and gives up.
func TestAnyMixOfFaultsKeepsThePromises(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := &storm{random: rand.New(rand.NewPCG(seed, 0))}
			env := newBench(t)
			var all []*replica
			for _, id := range []string{"a", "b", "c"} {
				all = append(all, env.join(id))
			}
			for _, r := range all {
				s.rage(r.tap)
			}
			var group errgroup.Group
			for _, r := range all {
				for range 3 {
					group.Go(func() error { return s.use(within(t, time.Minute), r) })
				}
			}
			require.NoError(t, group.Wait())
			s.calm()
			for _, r := range all {
				r.tap.deliver(within(t, patience))
			}
			for _, r := range all {
				r.idle(t)
				require.NoError(t, r.session.Check())
			}
			env.empty(key)
			require.NotZero(t, s.turns, "nobody ever had a turn")
			require.NotZero(t, s.strikes)
			release(t, all[seed%3].take(t, key))
		})
	}
}

// storm decides by chance, and counts.
type storm struct {
	mu      sync.Mutex
	random  *rand.Rand
	over    bool
	turns   int
	strikes int
	judge   judge
}

func (s *storm) chance(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

func (s *storm) calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// rage makes each request suffer one of the faults with some probability. Late ones arrive with one
// of the next requests.
func (s *storm) rage(tp *tap) {
	faults := []fault{lose, drop, keep, fullApplied, full}
	weights := []int{4, 4, 6, 3, 3} // out of a hundred
	tp.mu.Lock()
	tp.after = 3
	tp.mu.Unlock()
	lucky := func(i int) func(call) bool {
		return func(c call) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.over || reads[c.kind] && i > 1 || c.kind == "audit" || s.random.IntN(100) >= weights[i] {
				return false
			}
			s.strikes++
			return true
		}
	}
	for i, f := range faults {
		tp.on(lucky(i), -1, f)
	}
}

// use is a bot that handles some messages, and now and then loses patience or interest.
func (s *storm) use(ctx context.Context, r *replica) error {
	for range 6 {
		ticket, err := r.Reserve(ctx, key)
		if err != nil {
			if !typed(err) {
				return fmt.Errorf("reserve: %w", err)
			}
			continue
		}
		switch s.chance(4) {
		case 0:
			if err := ticket.Cancel(ctx); err != nil && !typed(err) {
				return fmt.Errorf("cancel: %w", err)
			}
			continue
		case 1:
			err = s.handle(ctx, r, ticket, time.Duration(s.chance(20))*time.Millisecond)
		default:
			err = s.handle(ctx, r, ticket, time.Minute)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *storm) handle(ctx context.Context, r *replica, ticket *tickets.Ticket, limit time.Duration) error {
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	turn, err := ticket.Acquire(wait)
	if err != nil {
		if typed(err) && wait.Err() != nil {
			return nil
		}
		return fmt.Errorf("acquire: %w", err)
	}
	if err := s.judge.enter(r, turn); err != nil {
		return err
	}
	s.mu.Lock()
	s.turns++
	s.mu.Unlock()
	s.judge.exit(turn)
	if err := turn.Release(ctx); err != nil && !typed(err) {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

// typed says whether an error is one of those that a verb may return while etcd misbehaves.
func typed(err error) bool {
	var u *fencing.CoordinationUnavailableError
	return errors.As(err, &u)
}
