package tickets

import (
	"container/heap"
	"slices"
	"sort"
)

// line is what this replica has in one key's queue. It is guarded by Queue.mu.
type line struct {
	slots  []*Ticket            // by slot number; nil is free
	unused freeSlots            // the numbers of those that are free
	flying map[*Ticket]struct{} // their Reserve is in flight
	live   []*Ticket            // by fence, oldest first
}

// freeSlots is a heap, the smallest number first.
type freeSlots struct{ sort.IntSlice }

// Push is for package heap.
func (f *freeSlots) Push(slot any) { f.IntSlice = append(f.IntSlice, slot.(int)) }

// Pop is for package heap.
func (f *freeSlots) Pop() any {
	last := len(f.IntSlice) - 1
	slot := f.IntSlice[last]
	f.IntSlice = f.IntSlice[:last]
	return slot
}

// open puts a new ticket into the smallest free slot.
func (l *line) open(t *Ticket) {
	if l.unused.Len() > 0 {
		t.slot = heap.Pop(&l.unused).(int)
	} else {
		t.slot = len(l.slots)
		l.slots = append(l.slots, nil)
	}
	l.slots[t.slot] = t
	if l.flying == nil {
		l.flying = make(map[*Ticket]struct{})
	}
	l.flying[t] = struct{}{}
}

// empty says that all slots are free.
func (l *line) empty() bool { return l.unused.Len() == len(l.slots) }

// free gives the slot back. Only for a ticket that is certainly not in etcd, now or later.
func (l *line) free(t *Ticket) {
	l.drop(t)
	l.slots[t.slot] = nil
	heap.Push(&l.unused, t.slot)
	t.state = gone
}

// queue enters a ticket whose Reserve was answered. Answers may arrive in another order than the
// tickets were made, so it is not always the last.
func (l *line) queue(t *Ticket) {
	delete(l.flying, t)
	at := len(l.live)
	for at > 0 && l.live[at-1].fence > t.fence {
		at--
	}
	l.live = slices.Insert(l.live, at, t)
}

// drop takes a ticket out of what may be granted; its slot stays in use.
func (l *line) drop(t *Ticket) {
	delete(l.flying, t)
	switch i := l.find(t); {
	case i == 0: // nearly always, and moving all others up would make long lines quadratic
		l.live[0] = nil
		l.live = l.live[1:]
	case i > 0:
		l.live = slices.Delete(l.live, i, i+1)
	}
}

func (l *line) find(t *Ticket) int {
	i, ok := slices.BinarySearchFunc(l.live, t.fence, func(o *Ticket, fence int64) int {
		return int(min(max(o.fence-fence, -1), 1))
	})
	if !ok || l.live[i] != t {
		return -1
	}
	return i
}

// oldest is the live ticket that is next in line here, or nil.
func (l *line) oldest() *Ticket {
	if len(l.live) == 0 {
		return nil
	}
	return l.live[0]
}
