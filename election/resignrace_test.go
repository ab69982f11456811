package election_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/election"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

// slowToEnd makes the end of a leadership's context take a while: who waits for it goes on when it has
// begun, and whoever ends it only after all that descends from it has ended, too.
func slowToEnd(t *testing.T, l *election.Leadership) {
	for range 1000 {
		_, cancel := context.WithCancel(l.Context())
		t.Cleanup(cancel)
	}
}

// lostHook calls f with each loss, before the replica notes it.
func lostHook(f func(name string)) rigOption {
	return func(_ *session.Config, e *election.Config) {
		note := e.Lost
		e.Lost = func(name string, fence fencing.Token, err error) {
			f(name)
			note(name, fence, err)
		}
	}
}

// requireResignedOrLost checks that each leadership ended in one way only, and that the losses, and no
// resignation, were told.
func requireResignedOrLost(t *testing.T, r *replica, ls []*election.Leadership) (resigned, lost int) {
	t.Helper()
	told := map[string]bool{}
	for _, line := range r.heard() {
		var what, name, fence string
		_, err := fmt.Sscan(line, &what, &name, &fence)
		require.NoError(t, err)
		told[fmt.Sprint(what, " ", name, " ", fence)] = true // whatever the reason
	}
	for _, l := range ls {
		cause := l.AssertHeld()
		require.Error(t, cause)
		wasTold := told[fmt.Sprintf("lost %s %d", l.Name(), l.Fence())]
		if errors.Is(cause, election.ErrReleased) {
			resigned++
			require.False(t, wasTold, "%s was resigned, and told as lost", l.Name())
			continue
		}
		lost++
		require.ErrorIs(t, cause, fencing.ErrLeaseLost)
		require.True(t, wasTold, "%s was lost, and nobody told", l.Name())
	}
	return resigned, lost
}

// One look finds that many keys are gone. While it goes through them, the next one is resigned each
// time: whoever comes first ends it, and one contender of each name follows.
func TestResignAndEvictionAtTheSameMomentEndALeadershipOnce(t *testing.T) {
	t.Parallel()
	const names = 50 // of one audit
	var (
		mu    sync.Mutex
		after map[string]*election.Leadership // what the look at hand comes to next
		wg    sync.WaitGroup
	)
	tp, prefix := &tap{}, testetcd.Prefix(t)
	a := join(t, tp.client(t, testetcd.Shared(t)), prefix, "a", lostHook(func(name string) {
		mu.Lock()
		next := after[name]
		mu.Unlock()
		if next == nil {
			return
		}
		wg.Go(func() {
			if err := next.Resign(context.Background()); err != nil {
				t.Errorf("resign %s: %v", next.Name(), err)
			}
		})
		<-next.Context().Done() // now both want it
	}))
	b := testetcd.Shared(t).Client(t)

	var ls []*election.Leadership
	byKey := map[string]*election.Leadership{}
	var next []*leading
	for i := range names {
		l, err := a.TryLead(t.Context(), fmt.Sprint("n", i))
		require.NoError(t, err)
		slowToEnd(t, l)
		ls = append(ls, l)
		byKey[a.ownKey(l.Name())] = l
		next = append(next, a.goLead(t.Context(), l.Name()), a.goLead(t.Context(), l.Name()))
	}
	eventually(t, "all wait", func() bool { _, calls := a.Counts(); return calls == 2*names })
	tp.before(func(r *txnRequest) {
		if len(r.Compare) > 0 || len(r.Success) != 1+2*names { // no audit of all of them
			return
		}
		order := map[string]*election.Leadership{}
		last := ""
		for _, op := range r.Success {
			if l := byKey[string(op.GetRequestRange().Key)]; l != nil {
				order[last], last = l, l.Name()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		after = order
	})
	_, err := b.Delete(t.Context(), a.schema.Prefix()+"v1/elections/", clientv3.WithPrefix())
	require.NoError(t, err)

	for _, l := range ls {
		<-l.Context().Done()
	}
	wg.Wait()
	eventually(t, "one follows for each name", func() bool { leads, calls := a.Counts(); return leads == names && calls <= names })
	resigned, lost := requireResignedOrLost(t, a, ls)
	t.Logf("%d were resigned, %d lost", resigned, lost)
	require.NotZero(t, resigned)
	for _, l := range ls {
		require.NoError(t, l.Resign(t.Context()), "again, and it touches nothing")
		require.Equal(t, []string{"a"}, candidates(t, b, a.schema, l.Name()))
	}
	_, calls := a.Counts()
	require.Equal(t, names, calls, "the other one waits")
	for i := 0; i < len(next); i += 2 {
		first, second := next[i], next[i+1]
		select {
		case <-first.done:
		case <-second.done:
			first, second = second, first
		}
		require.NoError(t, first.wins(t).AssertHeld())
		second.waits(t)
		require.NoError(t, first.l.Resign(t.Context()))
		require.NoError(t, second.wins(t).Resign(t.Context()))
	}
}

func TestResignAndEndAtTheSameMomentEndALeadershipOnce(t *testing.T) {
	t.Parallel()
	a, _ := two(t)
	var ls []*election.Leadership
	for i := range 30 {
		l, err := a.TryLead(t.Context(), fmt.Sprint("n", i))
		require.NoError(t, err)
		slowToEnd(t, l)
		ls = append(ls, l)
	}
	var wg sync.WaitGroup
	for _, l := range ls {
		wg.Go(func() {
			if err := l.Resign(context.Background()); err != nil {
				t.Errorf("resign %s: %v", l.Name(), err)
			}
		})
	}
	<-ls[0].Context().Done() // so that others are about to
	a.End(fencing.Stopped, nil)
	wg.Wait()
	resigned, lost := requireResignedOrLost(t, a, ls)
	t.Logf("%d were resigned, %d lost", resigned, lost)
	require.NotZero(t, resigned)
}
