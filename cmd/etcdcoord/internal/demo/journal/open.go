package journal

import (
	"sync"
	"time"
)

// Open follows the updates that are on their way: it paces the platform, tells when a fault
// would hit something, and when the run is over. It judges nothing.
type Open struct {
	mu       sync.Mutex
	updates  map[int64]*flight
	live     map[string]bool // replicas that take posts
	leader   string          // whose heartbeat came last
	sent     int
	acked    int
	handled  int
	dropped  int // given up, or acknowledged by a replica that died
	progress time.Duration
	changed  chan struct{} // closed and replaced at every change
	perOwner map[string]*Load
}

// Load is what one replica has to do.
type Load struct {
	Open    int // acknowledged by it and not finished
	Holding int // of these: begun
	Handled int
}

type flight struct {
	chat    string
	owner   string // "" until acknowledged
	holding bool
	closed  bool
}

// NewOpen returns a follower of j.
func NewOpen(j *Journal) *Open {
	o := &Open{
		updates: make(map[int64]*flight), live: make(map[string]bool),
		changed: make(chan struct{}), perOwner: make(map[string]*Load),
	}
	j.Tap(o.follow)
	return o
}

func (o *Open) follow(e Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch e.Kind {
	case Sent:
		o.updates[e.Update] = &flight{chat: e.Chat}
		o.sent++
	case Acked:
		o.acknowledge(e)
	case Begin:
		if f := o.updates[e.Update]; f != nil && !f.closed && f.owner == e.Replica && !f.holding {
			f.holding = true
			o.load(e.Replica).Holding++
		}
	case Wrote, Already:
		o.finish(e)
	case GaveUp:
		if f := o.updates[e.Update]; f != nil && f.owner == e.Replica {
			o.drop(f)
		}
	case Ready:
		o.live[e.Replica] = true
	case Killed, Terminated:
		delete(o.live, e.Replica)
	case Exited:
		delete(o.live, e.Replica)
		for _, f := range o.updates {
			if f.owner == e.Replica {
				o.drop(f)
			}
		}
	case Beat:
		o.leader = e.Replica // no progress: a leader may beat while every chat is stuck
		return
	default:
		return
	}
	o.progress = e.At
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *Open) acknowledge(e Entry) {
	f := o.updates[e.Update]
	if f == nil {
		return
	}
	o.acked++
	f.owner = e.Replica
	if !f.closed { // an earlier post that was given up on may have been handled already
		o.load(e.Replica).Open++
	}
}

func (o *Open) finish(e Entry) {
	f := o.updates[e.Update]
	if f == nil || f.closed {
		return
	}
	if e.Kind == Wrote {
		o.load(e.Replica).Handled++
	}
	o.handled++
	o.closeFlight(f)
}

func (o *Open) drop(f *flight) {
	if !f.closed {
		o.dropped++
		o.closeFlight(f)
	}
}

func (o *Open) closeFlight(f *flight) {
	f.closed = true
	if f.owner == "" {
		return
	}
	o.load(f.owner).Open--
	if f.holding {
		o.load(f.owner).Holding--
	}
}

func (o *Open) load(replica string) *Load {
	l := o.perOwner[replica]
	if l == nil {
		l = &Load{}
		o.perOwner[replica] = l
	}
	return l
}

// Counts is a look at the whole.
type Counts struct {
	Sent, Acked, Handled, Dropped int
	Leader                        string
	Progress                      time.Duration // when something last moved
}

// InFlight is how many updates are sent and neither handled nor given up.
func (c Counts) InFlight() int { return c.Sent - c.Handled - c.Dropped }

// Counts reads the counters; changed is closed at the next change of anything.
func (o *Open) Counts() (c Counts, changed <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return Counts{o.sent, o.acked, o.handled, o.dropped, o.leader, o.progress}, o.changed
}

// LoadOf is what replica has to do.
func (o *Open) LoadOf(replica string) Load {
	o.mu.Lock()
	defer o.mu.Unlock()
	return *o.load(replica)
}

// SharedWith tells whether a live replica other than the given one has acknowledged an update of
// chat and not finished it. With a coordinator that is a rival who waits for this chat's turn.
func (o *Open) SharedWith(chat, replica string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.updates {
		if f.chat == chat && !f.closed && f.owner != "" && f.owner != replica && o.live[f.owner] {
			return true
		}
	}
	return false
}
