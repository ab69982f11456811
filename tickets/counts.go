package tickets

// Counts says what this replica has in all queues together.
type Counts struct {
	Held     int // turns
	Waiting  int // tickets in line, or granted and not yet acquired
	InFlight int // Reserve is under way
	Leaving  int // given back, and not yet confirmed by etcd
	Ghosts   int // the outcome of Reserve is unknown, and being settled
}

// Counts counts. It takes time in proportion to what there is.
func (q *Queue) Counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	var c Counts
	for _, l := range q.lines {
		for _, t := range l.slots {
			if t == nil {
				continue
			}
			switch t.state {
			case reserving:
				c.InFlight++
			case waiting, granted:
				c.Waiting++
			case holding:
				c.Held++
			case leaving:
				c.Leaving++
			case ghost:
				c.Ghosts++
			}
		}
	}
	return c
}
