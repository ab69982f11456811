package session

import "time"

// window is the trust window: pure arithmetic on readings of one clock. The zero value is closed.
type window struct {
	until  time.Duration // the reading at which trust ends
	margin time.Duration // how much earlier than etcd's earliest possible expiry that is
}

// renewed is the window after a renewal that was sent at sent was answered with ttl.
//
// sent, not the moment of the answer: a slow answer must not buy trust. Never earlier than before:
// answers do not arrive in order of sending when an attempt was given up.
func (w window) renewed(sent, ttl time.Duration) window {
	w.until = max(w.until, sent+ttl-w.margin)
	return w
}

// left is how long trust lasts yet; zero or negative when it has ended.
func (w window) left(now time.Duration) time.Duration { return w.until - now }

// open says whether the replica may still believe.
func (w window) open(now time.Duration) bool { return w.left(now) > 0 }
