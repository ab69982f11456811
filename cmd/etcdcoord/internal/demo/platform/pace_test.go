package platform_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/platform"
)

// pacing counts what a plan lets out when everything is handled at once.
type pacing struct {
	j    *journal.Journal
	plan *platform.Plan
	out  int
}

func newPacing(maxOpen int, parts ...time.Duration) *pacing {
	j := journal.New()
	return &pacing{j: j, plan: platform.NewPlan(journal.NewOpen(j), maxOpen, parts...)}
}

// during lets out for d what may go, each update of another chat.
func (p *pacing) during(t *testing.T, d time.Duration, handled bool) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	before := p.out
	for p.plan.Wait(ctx, "") {
		p.out++
		id := int64(p.out)
		p.j.Add(journal.Entry{Kind: journal.Sent, Update: id})
		if handled {
			p.j.Add(journal.Entry{Kind: journal.Acked, Update: id, Replica: "r"})
			p.j.Add(journal.Entry{Kind: journal.Wrote, Update: id, Replica: "r"})
		}
	}
	return p.out - before
}

func TestEachPartHasItsShareAndWaitsForItsFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacing(100, 10*time.Second, 10*time.Second, 5*time.Second)
		p.plan.Known(100, true)
		require.InDelta(t, 20, p.during(t, 5*time.Second, true), 2, "40 updates over 10 s")
		p.during(t, time.Minute, true)
		require.Equal(t, 40, p.out, "not more, however long the fault takes")
		p.plan.PartDone()
		require.InDelta(t, 40, p.during(t, 10*time.Second, true), 2)
		p.plan.PartDone()
		p.during(t, 5*time.Second+100*time.Millisecond, true)
		require.GreaterOrEqual(t, p.out, 99)
	})
}

func TestAnInputThatGoesOnIsNotHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacing(100, 10*time.Second, 10*time.Second)
		p.plan.Known(5000, false)
		require.InDelta(t, 250*40, p.during(t, 40*time.Second, true), 100, "no share is known, so no limit")
	})
}

func TestNoMoreIsOutThanAllowedUntilSomethingIsHandled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacing(7, time.Second)
		p.plan.Known(1000, true)
		require.Equal(t, 7, p.during(t, time.Minute, false))
		p.j.Add(journal.Entry{Kind: journal.Acked, Update: 1, Replica: "r"})
		p.j.Add(journal.Entry{Kind: journal.Wrote, Update: 1, Replica: "r"})
		require.Equal(t, 1, p.during(t, time.Minute, false))
	})
}

func TestNeighboursOfAChatGoOutTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := journal.New()
		plan := platform.NewPlan(journal.NewOpen(j), 100, 100*time.Second)
		plan.Known(100, true)
		began := time.Now()
		for range 5 {
			require.True(t, plan.Wait(t.Context(), "a"))
		}
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.True(t, plan.Wait(t.Context(), "b"))
		require.InDelta(t, 5, time.Since(began).Seconds(), 0.2, "the next burst pays for it")
	})
}

func TestARunWithoutPartsTakesNoLongerThanItMust(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacing(100)
		p.plan.Known(120, true)
		require.InDelta(t, 40, p.during(t, time.Second, true), 2)
		p = newPacing(100)
		p.plan.Known(6000, true)
		require.InDelta(t, 400, p.during(t, time.Second, true), 10)
	})
}
