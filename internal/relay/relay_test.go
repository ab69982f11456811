package relay_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/internal/relay"
)

func TestEachListenerHearsAllInOrderHoweverSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r relay.Relay[int]
		var slow, fast []int
		var at atomic.Int64 // deliveries to the slow one under way
		r.Listen(func(v int) {
			if at.Add(1) != 1 {
				t.Error("two deliveries to one listener at a time")
			}
			time.Sleep(time.Second)
			slow = append(slow, v)
			at.Add(-1)
		})
		r.Listen(func(v int) { fast = append(fast, v) })
		began := time.Now()
		for v := range 1000 {
			r.Send(v)
		}
		require.Zero(t, time.Since(began), "Send never waits")
		synctest.Wait()
		require.Len(t, fast, 1000, "nor does a fast listener")
		require.NoError(t, r.Drain(t.Context()))
		require.Equal(t, 1000*time.Second, time.Since(began))
		require.Equal(t, fast, slow)
		for i, v := range fast {
			require.Equal(t, i, v)
		}
	})
}

func TestNothingIsHeardFromBeforeListenOrAfterUnsubscribe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r relay.Relay[int]
		r.Send(1)
		var heard []int
		unsubscribe := r.Listen(func(v int) {
			heard = append(heard, v)
			time.Sleep(time.Second)
		})
		r.Send(2)
		r.Send(3)
		synctest.Wait() // 2 is under way, 3 waits
		unsubscribe()
		unsubscribe() // again
		r.Send(4)
		require.NoError(t, r.Drain(t.Context()), "what is under way is waited for")
		require.Equal(t, []int{2}, heard)
	})
}

func TestUnsubscribeFromInsideAListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r relay.Relay[int]
		var first, second []int
		var unsubscribe func()
		unsubscribe = r.Listen(func(v int) {
			first = append(first, v)
			unsubscribe()
		})
		r.Listen(func(v int) { second = append(second, v) })
		for v := range 5 {
			r.Send(v)
		}
		require.NoError(t, r.Drain(t.Context()))
		require.Equal(t, []int{0}, first)
		require.Equal(t, []int{0, 1, 2, 3, 4}, second)
	})
}

func TestListenAndSendFromInsideAListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r relay.Relay[int]
		var late []int
		r.Listen(func(v int) {
			if v == 0 {
				r.Listen(func(v int) { late = append(late, v) })
				r.Send(1)
			}
		})
		r.Send(0)
		require.NoError(t, r.Drain(t.Context()))
		require.Equal(t, []int{1}, late)
	})
}

func TestDrainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r relay.Relay[int]
		release := make(chan struct{})
		r.Listen(func(int) { <-release })
		require.NoError(t, r.Drain(t.Context()), "nothing to wait for")
		r.Send(1)
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		require.Equal(t, why, r.Drain(ctx))
		close(release)
		require.NoError(t, r.Drain(t.Context()))
	})
}

// A listener may stop the very thing that sends to it, and Stop drains.
func TestDrainFromInsideAListenerWaitsForTheOthersOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r relay.Relay[int]
		var other, drained atomic.Bool
		r.Listen(func(int) {
			time.Sleep(time.Second)
			other.Store(true)
		})
		r.Listen(func(v int) {
			if v > 0 {
				return
			}
			if err := r.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			drained.Store(other.Load())
		})
		r.Send(0)
		synctest.Wait()
		require.False(t, drained.Load())
		require.NoError(t, r.Drain(t.Context()))
		require.True(t, drained.Load())
	})
}

func TestTwoListenersThatDrainDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r relay.Relay[int]
		var drained atomic.Int64
		for i := range 3 {
			r.Listen(func(int) {
				time.Sleep(time.Duration(i) * time.Second) // one after the other
				if err := r.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				drained.Add(1)
			})
		}
		r.Send(0)
		require.NoError(t, r.Drain(t.Context()))
		require.EqualValues(t, 3, drained.Load())
	})
}

// The bubble itself fails if a goroutine is left when its function returns.
func TestAnIdleRelayHasNoGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		var r relay.Relay[int]
		for range 100 {
			r.Listen(func(int) {})
		}
		r.Send(1)
		synctest.Wait()
	})
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	var r relay.Relay[[2]int] // sender, number
	var wg sync.WaitGroup
	for range 4 { // listeners that come and go
		wg.Go(func() {
			for range 50 {
				last := map[int]int{}
				unsubscribe := r.Listen(func(v [2]int) {
					if n, ok := last[v[0]]; ok && v[1] != n+1 {
						t.Errorf("%d came after %d of sender %d", v[1], n, v[0])
					}
					last[v[0]] = v[1]
				})
				if err := r.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				unsubscribe()
			}
		})
	}
	for sender := range 4 {
		wg.Go(func() {
			for n := range 2000 {
				r.Send([2]int{sender, n})
			}
		})
	}
	wg.Wait()
	require.NoError(t, r.Drain(t.Context()))
}
