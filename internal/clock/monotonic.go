package clock

import "time"

var start = time.Now()

func monotonic() time.Duration { return time.Since(start) }
