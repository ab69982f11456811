package platform

import (
	"context"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
)

// Plan spreads the updates over a run with faults in it. The run has one part per fault and one
// after the last. Each part gets its share of the updates, over its planned time; a part that
// takes longer than planned does not use up the next one's share, so that no fault happens in
// silence. Without parts everything goes out as it comes, no faster than the default rate but for
// a set that would then take too long.
//
// Plan implements Pace.
type Plan struct {
	open *journal.Open
	// maxOpen is how many updates may be under way. Each of them can be lost with its replica, and
	// a slow machine must not pile them up.
	maxOpen int

	mu     sync.Mutex      // guards the rest
	parts  []time.Duration // that are left, the current one first; never empty, but for a run without parts
	total  int             // how many updates there are, as far as is known
	ended  bool            // total is known for certain
	before int             // sent before the current part
	inPart int             // sent in it
	rate   float64         // updates per second
	tokens float64
	last   time.Time // when tokens was right
	chat   string    // of the last update
	poked  chan struct{}
}

// assumedTotal is how many updates an input is taken to have as long as it goes on.
const assumedTotal = 600

const (
	defaultRate         = 40.0 // updates per second, in a run without parts
	longestWithoutParts = 15 * time.Second
)

// burst is how many neighbours of one chat go out at once.
const burst = 8

// NewPlan plans for parts of the given lengths.
func NewPlan(open *journal.Open, maxOpen int, parts ...time.Duration) *Plan {
	p := &Plan{open: open, maxOpen: maxOpen, parts: parts, total: assumedTotal, poked: make(chan struct{})}
	p.replan()
	return p
}

// Known tells how many updates were read so far, and whether these are all.
func (p *Plan) Known(n int, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended = all; all {
		p.total = n
	} else {
		p.total = max(n, assumedTotal)
	}
	p.replan()
}

// PartDone ends a part: its fault has happened and healed.
func (p *Plan) PartDone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.parts) > 1 {
		p.parts = p.parts[1:]
		p.before, p.inPart = p.before+p.inPart, 0
	}
	p.replan()
}

// replan sets the rate of the current part. It needs the lock.
func (p *Plan) replan() {
	if len(p.parts) == 0 {
		p.rate = max(defaultRate, float64(p.total)/longestWithoutParts.Seconds())
	} else {
		p.rate = float64(p.share()) / p.parts[0].Seconds()
	}
	close(p.poked)
	p.poked = make(chan struct{})
}

// share is how many updates the current part may send in all. It needs the lock.
func (p *Plan) share() int {
	var left time.Duration
	for _, part := range p.parts {
		left += part
	}
	share := float64(p.total-p.before) * p.parts[0].Seconds() / left.Seconds()
	return max(int(share+0.5), 1)
}

// Wait returns when the next update, which is of the given chat, may go out; false when ctx ended.
func (p *Plan) Wait(ctx context.Context, chat string) bool {
	for {
		counts, changed := p.open.Counts()
		wait, poked := p.take(chat, counts.InFlight())
		if wait == 0 {
			return ctx.Err() == nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-poked:
		case <-changed:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

// take lets one update out (0), or says how long to wait before asking again.
func (p *Plan) take(chat string, inFlight int) (wait time.Duration, poked <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.last.IsZero() {
		p.tokens = min(p.tokens+now.Sub(p.last).Seconds()*p.rate, 1)
	}
	p.last = now
	// The last part has no limit but the end. As long as the input goes on there is nothing to share out.
	shareUsed := p.ended && len(p.parts) > 1 && p.inPart >= p.share()
	if inFlight >= p.maxOpen || shareUsed {
		return time.Second, p.poked // a change comes before that
	}
	needed := 0.0
	if chat == p.chat && chat != "" {
		needed = -burst
	}
	if p.tokens < needed {
		return time.Duration((needed-p.tokens)/p.rate*float64(time.Second)) + time.Millisecond, p.poked
	}
	p.tokens--
	p.inPart++
	p.chat = chat
	return 0, p.poked
}
