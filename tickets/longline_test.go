//go:build unix

package tickets_test

import (
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/tickets"
)

// The bookkeeping of a long line must not be quadratic: with eight times the tickets it takes about
// eight times as long, and certainly not sixty-four. What counts is processor time, without garbage
// collection, and the best of some rounds, so that a busy machine does not matter.
func TestTheBookkeepingOfALongLineIsNotQuadratic(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const n = 4_000
	few, many := time.Hour, time.Hour
	for round := 1; round <= 3 || many > 30*few; round++ {
		require.LessOrEqual(t, round, 10, "%d tickets take %v, %d take %v", n, few, 8*n, many)
		few, many = min(few, used(t, n)), min(many, used(t, 8*n))
	}
}

// used is the processor time that a line of n tickets takes.
func used(t *testing.T, n int) time.Duration {
	t.Helper()
	before := processor(t)
	tickets.UseLine(n)
	return processor(t) - before
}

func processor(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
