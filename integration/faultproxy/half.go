package faultproxy

import (
	"errors"
	"io"
	"net"
	"time"
)

const (
	readSize = 64 << 10
	// maxQueued bounds what a half keeps. Beyond it nothing is read, and the sender feels it as a
	// receiver that does not read.
	maxQueued = 16 << 20
)

// half is one direction of a link: receive puts what the sender sends in a queue, deliver takes
// it out when no fault forbids it.
type half struct {
	link *link
	dir  Direction
	wake chan struct{} // one slot: deliver or receive has a reason to look again

	// guarded by proxy.mu
	queue     []piece
	queued    int64
	held      bool
	allowance int64 // bytes that may pass although held
	lossy     bool  // bytes, or the sender's end, were dropped
	ended     bool  // the sender has ended, orderly or not
	broken    bool  // ... not
	deaf      bool  // the receiver is gone: what is left and what follows goes nowhere
}

type piece struct {
	data []byte
	due  time.Time
}

// nudge wakes the pumps of this half.
func (h *half) nudge() {
	select {
	case h.wake <- struct{}{}:
	default: // a nudge is pending already, and whoever takes it looks at everything
	}
}

// lose empties the queue into the black hole. Needs proxy.mu.
func (h *half) lose() {
	if h.queued > 0 || h.ended {
		h.lossy = true
	}
	h.queue, h.queued = nil, 0
}

func (h *half) receive(from net.Conn) {
	buf := make([]byte, readSize)
	for h.waitRoom() {
		n, err := from.Read(buf)
		h.take(buf[:n], err)
		if err != nil {
			return
		}
	}
}

// waitRoom blocks while the queue is full and reports whether the link lives.
func (h *half) waitRoom() bool {
	for {
		h.link.proxy.mu.Lock()
		full, room, cut := h.queued >= maxQueued, h.link.proxy.changed, h.link.over
		h.link.proxy.mu.Unlock()
		switch {
		case cut:
			return false
		case !full:
			return true
		}
		select {
		case <-room:
		case <-h.link.dead:
		}
	}
}

// take records what one read returned.
func (h *half) take(data []byte, err error) {
	p := h.link.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counted[h.dir].received += int64(len(data))
	if err != nil {
		h.ended = true
		h.broken = !errors.Is(err, io.EOF)
	}
	switch {
	case p.fault[h.dir].drop:
		h.lossy = true
	case len(data) > 0 && !h.deaf:
		h.queue = append(h.queue, piece{data: append([]byte(nil), data...), due: time.Now().Add(p.fault[h.dir].delay)})
		h.queued += int64(len(data))
	}
	h.nudge()
	p.announce()
}

func (h *half) deliver(to net.Conn) {
	for {
		data, wait, done := h.next()
		switch {
		case done:
			h.finish(to)
			return
		case data != nil:
			_, err := to.Write(data)
			h.delivered(len(data), err)
		default:
			if !h.pause(wait) {
				return
			}
		}
	}
}

// next says what to do now: write data, end, or wait (0: until woken).
func (h *half) next() (data []byte, wait time.Duration, done bool) {
	p := h.link.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case h.link.over:
		return nil, 0, true
	case h.deaf:
		return nil, 0, h.ended
	case p.fault[h.dir].drop, h.lossy:
		return nil, 0, false // also the end of the sender is swallowed
	case h.held && h.allowance == 0:
		return nil, 0, false // also the end waits, for it comes after what is held
	case len(h.queue) == 0:
		return nil, 0, h.ended && !h.held
	}
	first := &h.queue[0]
	if wait = time.Until(first.due); wait > 0 {
		return nil, wait, false
	}
	data = first.data
	if h.held && int64(len(data)) > h.allowance {
		data = data[:h.allowance]
	}
	if h.held {
		h.allowance -= int64(len(data))
	}
	if first.data = first.data[len(data):]; len(first.data) == 0 {
		h.queue = h.queue[1:]
	}
	h.queued -= int64(len(data))
	return data, 0, false
}

// delivered records a write. If the receiver is gone, what its peer still sends is swallowed: the
// link must not be torn down before the other half has delivered what it holds.
func (h *half) delivered(n int, err error) {
	p := h.link.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		h.goDeaf()
		if h.dir == ToServer && h.link.halves[ToClient].finished() {
			h.link.finish() // the server has closed both ways
		}
	} else {
		p.counted[h.dir].forwarded += int64(n)
	}
	p.announce()
}

// finished reports that the sender has ended and nothing of it is left. Needs proxy.mu.
func (h *half) finished() bool { return h.ended && h.queued == 0 && !h.held }

// goDeaf gives up on the receiver. Needs proxy.mu.
func (h *half) goDeaf() {
	h.deaf = true
	h.queue, h.queued = nil, 0
	h.nudge()
}

// finish passes the sender's end on.
//
// A server is only told that nothing more comes, and then heard out, even when its client is gone
// both ways: to close the socket while it still answers would reset it, and a reset takes from the
// server what it has not read yet of the held request. The client of a dead server is closed.
func (h *half) finish(to net.Conn) {
	p := h.link.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	other := h.link.halves[1-h.dir]
	switch {
	case h.deaf, h.dir == ToClient && (h.broken || other.deaf):
		h.link.finish()
		return
	case h.broken:
		other.goDeaf()
	}
	if tcp, ok := to.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

// pause waits for a nudge, for wait if that is not 0, or for the end of the link (false).
func (h *half) pause(wait time.Duration) bool {
	var timeout <-chan time.Time
	if wait > 0 {
		timeout = time.After(wait)
	}
	select {
	case <-h.wake:
	case <-timeout:
	case <-h.link.dead:
		return false
	}
	return true
}

// waitNotDropping blocks in a black hole and reports whether the link lives.
func (h *half) waitNotDropping() bool {
	p := h.link.proxy
	for {
		p.mu.Lock()
		dropping, cut, changed := p.fault[h.dir].drop || h.lossy, h.link.over, p.changed
		p.mu.Unlock()
		switch {
		case cut:
			return false
		case !dropping:
			return true
		}
		select {
		case <-changed:
		case <-h.link.dead:
		}
	}
}
