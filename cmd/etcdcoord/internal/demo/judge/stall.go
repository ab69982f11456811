package judge

import (
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
)

// stalls finds the longest time in which a chat had acknowledged updates and none of them was
// begun or finished. An update that nobody handled any more waits until its replica was killed or
// frozen, not longer.
func (t *trial) stalls() {
	type state struct {
		waiting map[int64]string // update -> the replica that acknowledged it
		since   time.Duration    // of the last progress, or of the first acknowledgement
	}
	chats := make(map[string]*state)
	var longest time.Duration
	settle := func(s *state, at time.Duration) {
		if len(s.waiting) > 0 {
			longest = max(longest, at-s.since)
		}
		s.since = at
	}
	for _, e := range t.entries {
		switch e.Kind {
		case journal.Killed, journal.Frozen, journal.Exited:
			for _, s := range chats {
				for id, owner := range s.waiting {
					if owner == e.Replica && t.neverWritten(id) {
						if len(s.waiting) == 1 {
							settle(s, e.At)
						}
						delete(s.waiting, id)
					}
				}
			}
			continue
		}
		u := t.updates[e.Update]
		if u == nil || u.chat == "" {
			continue
		}
		s := chats[u.chat]
		if s == nil {
			s = &state{waiting: make(map[int64]string)}
			chats[u.chat] = s
		}
		switch e.Kind {
		case journal.Acked:
			if len(s.waiting) == 0 {
				s.since = e.At
			}
			if len(u.writes) == 0 || u.writes[0].At > e.At { // its write may be noted before the 2xx is read
				s.waiting[e.Update] = e.Replica
			}
		case journal.Begin:
			settle(s, e.At)
		case journal.Wrote:
			settle(s, e.At)
			delete(s.waiting, e.Update)
		}
	}
	t.v.MaxStallMS = longest.Milliseconds()
}

func (t *trial) neverWritten(id int64) bool { return len(t.updates[id].writes) == 0 }
