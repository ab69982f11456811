package integration_test

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

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// crowd are goroutines that do everything at once with one coordinator.
type crowd struct {
	t       *testing.T
	c       *etcdcoord.Coordinator
	until   time.Time
	wg      sync.WaitGroup
	turns   atomic.Int64
	failed  atomic.Int64                      // calls of Reserve
	holding [3]atomic.Pointer[etcdcoord.Turn] // by key, who held last
}

// allowed are the errors that the verbs may return here. A caller's own deadline or cancellation is
// wrapped by them, or plain.
func (x *crowd) allowed(verb string, err error) {
	for _, defined := range []error{
		nil, etcdcoord.ErrNotStarted, etcdcoord.ErrStopped, etcdcoord.ErrTicketSpent, etcdcoord.ErrReleased,
		etcdcoord.ErrLeaseLost, etcdcoord.ErrUnavailable, errImpatient,
	} {
		if errors.Is(err, defined) {
			return
		}
	}
	x.t.Errorf("%s: undefined error %v", verb, err)
}

var errImpatient = errors.New("the caller went away")

// impatient is a context that ends by itself soon, in one way or the other, or not so soon.
func impatient() (context.Context, func()) {
	limit := rand.N(10 * time.Millisecond)
	switch rand.IntN(10) {
	case 0:
		return context.WithTimeout(context.Background(), limit)
	case 1:
		ctx, cancel := context.WithCancelCause(context.Background())
		timer := time.AfterFunc(limit, func() { cancel(errImpatient) })
		return ctx, func() {
			timer.Stop()
			cancel(nil)
		}
	}
	return context.WithTimeout(context.Background(), 5*time.Second)
}

// twice runs each function twice, all at the same time.
func twice(functions ...func()) {
	var wg sync.WaitGroup
	for _, f := range functions {
		wg.Go(f)
		wg.Go(f)
	}
	wg.Wait()
}

func (x *crowd) turn() {
	i := rand.IntN(len(x.holding))
	ctx, done := impatient()
	defer done()
	ticket, err := x.c.Reserve(ctx, fmt.Sprint("chat ", i))
	x.allowed("reserve", err)
	if err != nil {
		x.failed.Add(1)
		time.Sleep(rand.N(5 * time.Millisecond)) // a stopped coordinator answers at once: no spinning
		return
	}
	var got atomic.Int32
	acquire := func() {
		ctx, done := impatient()
		defer done()
		turn, err := x.c.AcquireTurn(ctx, ticket)
		x.allowed("acquire", err)
		if err != nil {
			return
		}
		if got.Add(1) > 1 {
			x.t.Error("one ticket, two turns")
		}
		x.hold(i, turn)
	}
	cancel := func() {
		if rand.IntN(3) > 0 {
			return
		}
		ctx, done := impatient()
		defer done()
		x.allowed("cancel", ticket.Cancel(ctx))
	}
	twice(acquire, cancel)
	x.allowed("cancel", ticket.Cancel(context.Background())) // the idiom; at the latest now the ticket is used
}

func (x *crowd) hold(i int, turn *etcdcoord.Turn) {
	x.turns.Add(1)
	if before := x.holding[i].Swap(turn); before != nil {
		if before.AssertHeld() == nil {
			x.t.Errorf("%q is held under the fences %d and %d at once", turn.Key(), before.Fence(), turn.Fence())
		}
		if before.Fence() >= turn.Fence() {
			x.t.Errorf("fence %d after %d", turn.Fence(), before.Fence())
		}
	}
	work, end := turn.Bind(context.Background())
	defer end()
	select {
	case <-work.Done():
	case <-time.After(rand.N(time.Millisecond)):
	}
	twice(
		func() {
			ctx, done := impatient()
			defer done()
			x.allowed("release", turn.Release(ctx))
		},
		func() { x.allowed("assert held", turn.AssertHeld()) },
	)
	if turn.AssertHeld() == nil {
		x.t.Error("held after its release")
	}
}

func (x *crowd) lifecycle() {
	ctx, done := impatient()
	defer done()
	switch rand.IntN(3) {
	case 0:
		x.allowed("stop", x.c.Stop(ctx))
	case 1:
		x.allowed("start", x.c.Start(ctx))
	case 2:
		x.allowed("start", x.c.Start(context.Background()))
	}
	x.c.Stats()
	time.Sleep(rand.N(200 * time.Millisecond))
}

// over says when it was long enough, on a slow machine not before there were some turns.
func (x *crowd) over() bool {
	left := time.Until(x.until)
	return left < 0 && x.turns.Load() >= 20 || left < -patience
}

func (x *crowd) run(n int, do func()) {
	for range n {
		x.wg.Go(func() {
			for !x.over() {
				do()
			}
		})
	}
}

// F35.
func TestEverythingAtOnceOnOneCoordinatorHasNoRaceAndOnlyDefinedErrors(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.unstarted(b.etcd.Client(t), "a")
	t.Cleanup(func() { stop(t, c) })
	x := &crowd{t: t, c: c, until: time.Now().Add(2500 * time.Millisecond)}
	unsubscribe := etcdcoord.On(c, func(etcdcoord.Event) {})
	defer unsubscribe()
	x.run(8, x.turn)
	x.run(2, x.lifecycle)
	x.wg.Wait()
	require.GreaterOrEqual(t, x.turns.Load(), int64(20))
	require.NoError(t, c.Stop(soon(t)))
	b.onlyHolders()
}

// The same without stopping in between: nothing but the queue's own clean-up may remove what the
// impatient have left.
func TestImpatientCallersLeaveNothingBehindInALivingSession(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.replica("a")
	x := &crowd{t: t, c: c, until: time.Now().Add(1500 * time.Millisecond)}
	x.run(8, x.turn)
	x.wg.Wait()
	require.GreaterOrEqual(t, x.turns.Load(), int64(20))
	require.Positive(t, x.failed.Load(), "nobody was impatient enough to leave a ghost")
	require.Eventually(t, func() bool {
		s := c.Stats()
		return s.TurnsHeld+s.TicketsWaiting+s.Reserving+s.Leaving+s.Ghosts == 0
	}, patience, time.Millisecond, "%+v", c.Stats())
	require.Empty(t, b.tickets())
	require.Zero(t, c.Stats().SessionsLost)
	for i := range x.holding {
		release(t, take(t, c, fmt.Sprint("chat ", i))) // all of them are free
	}
	require.NoError(t, c.Stop(soon(t)))
	b.onlyHolders()
}

// onlyHolders asserts that the bot has left nothing in etcd but records of who held last.
func (b *bot) onlyHolders() {
	b.t.Helper()
	for _, name := range b.keys("") {
		require.True(b.t, isHolder(name), name)
	}
}
