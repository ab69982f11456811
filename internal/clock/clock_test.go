package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/internal/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestItNeverGoesBack(t *testing.T) {
	t.Parallel()
	for range 4 {
		t.Run("goroutine", func(t *testing.T) { // on several processors
			t.Parallel()
			last := clock.System()
			for range 200_000 {
				now := clock.System()
				if now < last {
					t.Fatalf("%v after %v", now, last)
				}
				last = now
			}
		})
	}
}

func TestItGoesAtTheRateOfTime(t *testing.T) {
	t.Parallel()
	outer, began := time.Now(), clock.System()
	inner := time.Now()
	timer := time.NewTimer(100 * time.Millisecond)
	<-timer.C
	atLeast := time.Since(inner)
	passed := clock.System() - began
	atMost := time.Since(outer)
	// A millisecond for the two clocks' different corrections.
	require.GreaterOrEqual(t, passed, atLeast-time.Millisecond)
	require.LessOrEqual(t, passed, atMost+time.Millisecond)
}

// It asks the machine, so no fake time of a test, and no change of Go's clock, moves it.
func TestItIsTheMachinesClockAndNotGos(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		before := clock.System()
		time.Sleep(time.Hour)
		require.Less(t, clock.System()-before, time.Minute)
	})
}
