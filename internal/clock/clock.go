// Package clock is the clock by which trust in a session is measured.
//
// It counts while the machine is suspended. Go's monotonic clock does not on Linux, and a laptop
// or a paused virtual machine would wake up believing in a lease that ended hours ago.
package clock

import "time"

// Clock reads the time since some fixed moment. It never goes back and no wall clock change
// touches it. Only differences between readings of the same Clock mean anything.
type Clock func() time.Duration
