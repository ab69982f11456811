package fencing

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/internal/clock"
)

// Suspending the machine is nothing that a test can do, so the clocks are set apart by hand.
func TestTimeInSuspendCounts(t *testing.T) {
	t.Parallel()
	g := startStopwatch().grant("k", "a", 1, time.Minute)
	require.Greater(t, g.Left(), 30*time.Second)
	g.boot -= 40 * time.Second // asleep, unnoticed by Go's clock
	require.Less(t, g.Left(), 20*time.Second)
	g.boot = clock.System() - 1
	require.Zero(t, g.Left())
}

func TestLongestGrantDoesNotOverflow(t *testing.T) {
	t.Parallel()
	s := startStopwatch()
	s.boot = math.MaxInt64 - 5
	g := s.grant("k", "a", 1, MaxTTL)
	require.Greater(t, g.Left(), 100*365*24*time.Hour)
}
