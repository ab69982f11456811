//go:build !linux

package clock

import "time"

// System is the clock of this machine. Go's monotonic clock goes on in suspend on Windows; on
// macOS it does not, and a session that slept through its end is found by the first renewal.
func System() time.Duration { return monotonic() }
