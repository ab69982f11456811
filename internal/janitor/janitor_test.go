package janitor_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/internal/janitor"
)

func TestAJobIsTriedUntilItIsDoneWithGrowingPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := janitor.New(2)
		var at []time.Time
		j.Go(func(context.Context) bool {
			at = append(at, time.Now())
			return len(at) == 12
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, at, 12, "until it is done, and not once more")
		require.LessOrEqual(t, at[1].Sub(at[0]), 25*time.Millisecond)
		for i := 1; i < len(at); i++ {
			pause := at[i].Sub(at[i-1])
			require.Positive(t, pause)
			require.LessOrEqual(t, pause, 1100*time.Millisecond)
		}
		require.GreaterOrEqual(t, at[11].Sub(at[10]), 500*time.Millisecond)
		j.Close()
	})
}

func TestAtMostSoManyJobsRunAtATimeInTheOrderTheyCame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := janitor.New(3)
		var running, most atomic.Int64
		var mu sync.Mutex
		var order []int
		for i := range 30 {
			j.Go(func(context.Context) bool {
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Second)
				running.Add(-1)
				return true
			})
		}
		time.Sleep(9500 * time.Millisecond)
		require.EqualValues(t, 3, running.Load())
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 3, most.Load())
		require.Len(t, order, 30)
		for i := range order { // those of one second began in any order
			require.Equal(t, i/3, order[i]/3)
		}
		j.Close()
	})
}

// A job that never is done must not keep the others from their turn.
func TestAFailingJobDoesNotBlockTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := janitor.New(1)
		var tries, done atomic.Int64
		j.Go(func(context.Context) bool { tries.Add(1); return false })
		for range 10 {
			j.Go(func(context.Context) bool { done.Add(1); return true })
		}
		synctest.Wait()
		require.EqualValues(t, 10, done.Load())
		require.EqualValues(t, 1, tries.Load())
		time.Sleep(10 * time.Second)
		require.Greater(t, tries.Load(), int64(8))
		j.Close()
	})
}

func TestGoNeverBlocksAndAJobMayAddJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := janitor.New(1)
		var done atomic.Int64
		j.Go(func(context.Context) bool {
			time.Sleep(time.Second)
			j.Go(func(context.Context) bool { done.Add(1); return true })
			return true
		})
		for range 1000 {
			j.Go(func(context.Context) bool { done.Add(1); return true })
		}
		require.Zero(t, done.Load())
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 1001, done.Load())
		j.Close()
	})
}

func TestCloseDropsWhatWaitsEndsWhatRunsAndWaitsForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := janitor.New(2)
		var ended, dropped, resting atomic.Int64
		j.Go(func(context.Context) bool { resting.Add(1); return false })
		synctest.Wait()
		for range 2 {
			j.Go(func(ctx context.Context) bool {
				<-ctx.Done()
				time.Sleep(time.Second) // it takes a while to wind up
				ended.Add(1)
				return false
			})
		}
		j.Go(func(context.Context) bool { dropped.Add(1); return true })
		synctest.Wait()
		began, rested := time.Now(), resting.Load()
		j.Close()
		require.Equal(t, time.Second, time.Since(began))
		require.EqualValues(t, 2, ended.Load())
		j.Go(func(context.Context) bool { dropped.Add(1); return true })
		j.Close() // again
		time.Sleep(time.Minute)
		require.Zero(t, dropped.Load())
		require.Equal(t, rested, resting.Load(), "a resting job is not tried any more")
	})
}

// The bubble itself fails if a goroutine is left when its function returns.
func TestAnIdleJanitorHasNoGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		j := janitor.New(4)
		for range 10 {
			j.Go(func(context.Context) bool { return true })
		}
		synctest.Wait() // not closed
	})
}

func TestJobsFromManyGoroutinesAreAllDone(t *testing.T) {
	t.Parallel()
	j := janitor.New(4)
	var left sync.WaitGroup
	for range 8 {
		for range 50 {
			left.Add(1)
		}
		go func() {
			for i := range 50 {
				tries := i % 3
				j.Go(func(context.Context) bool {
					if tries--; tries >= 0 {
						return false
					}
					left.Done()
					return true
				})
			}
		}()
	}
	left.Wait()
	j.Close()
}
