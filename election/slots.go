package election

import (
	"context"
	"slices"
)

// slot is the right to our candidate key of one name. The key is named after the lease, so there
// can be only one at a time; the next contender starts when the key is known to be gone.
type slot struct {
	leaving bool      // nobody wants the key any more, but it is not known to be gone
	queue   []*waiter // FIFO
}

type waiter struct {
	try  bool
	turn chan bool // one slot: true says that the slot is the waiter's, false that he is refused
}

// take gets the slot of a name, for a Lead in its turn, for a TryLead only if nobody here
// campaigns, leads or waits. A key that is on its way out is waited for by both.
func (e *Elector) take(ctx context.Context, name string, try bool) error {
	e.mu.Lock()
	if e.endErr != nil {
		e.mu.Unlock()
		return e.endErr
	}
	s := e.slots[name]
	if s == nil {
		e.slots[name] = &slot{}
		e.mu.Unlock()
		return nil
	}
	if try && (!s.leaving || len(s.queue) > 0) {
		e.mu.Unlock()
		return ErrNotElected
	}
	w := &waiter{try: try, turn: make(chan bool, 1)}
	s.queue = append(s.queue, w)
	e.mu.Unlock()

	var err error
	select {
	case mine := <-w.turn:
		if !mine {
			return ErrNotElected
		}
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-e.ctx.Done():
		err = e.ended()
	}
	e.leaveQueue(name, s, w)
	return err
}

// leaveQueue takes a waiter out. If his turn has come at the same moment, it goes to the next one.
func (e *Elector) leaveQueue(name string, s *slot, w *waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(s.queue, w); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		return
	}
	// Not in the queue: free has sent already, under this lock.
	if mine := <-w.turn; mine {
		e.freeLocked(name)
	}
}

// free gives the slot to the next in the queue. Only for who has it, and when the key is gone.
func (e *Elector) free(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.freeLocked(name)
}

func (e *Elector) freeLocked(name string) {
	s := e.slots[name]
	if len(s.queue) == 0 {
		delete(e.slots, name)
		return
	}
	s.leaving = false
	s.queue[0].turn <- true
	rest := s.queue[:0:0]
	for _, w := range s.queue[1:] {
		if w.try {
			w.turn <- false // somebody campaigns now
			continue
		}
		rest = append(rest, w)
	}
	s.queue = rest
}
