package judge

import (
	"slices"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
)

// update is one update's story.
type update struct {
	id      int64
	chat    string
	seq     int // place in the order in which the platform got them
	acked   []journal.Entry
	begins  []journal.Entry
	writes  []journal.Entry // accepted
	inFinal bool            // the ledger has it
}

// fault is what was done to one replica.
type fault struct {
	killed  bool
	freezes []freeze
}

type freeze struct{ from, to time.Duration }

const forever = time.Duration(1<<63 - 1)

type trial struct {
	c       Case
	entries []journal.Entry
	v       *Verdict
	updates map[int64]*update
	order   []*update // as sent
	faults  map[string]*fault
}

// Judge reads the entries of a run that is over.
func Judge(entries []journal.Entry, c Case) *Verdict {
	t := &trial{
		c: c, entries: entries, v: &Verdict{},
		updates: make(map[int64]*update), faults: make(map[string]*fault),
	}
	t.collect()
	t.outcomes()
	t.orderAndOverlaps()
	t.staleWrites()
	t.leaders()
	t.stalls()
	if len(entries) > 0 {
		t.v.ElapsedMS = entries[len(entries)-1].At.Milliseconds()
	}
	t.v.sumUp()
	t.v.OK = t.v.Violations() == 0 && t.v.Sent > 0
	return t.v
}

func (t *trial) collect() {
	for _, e := range t.entries {
		if e.Kind == journal.Sent {
			u := &update{id: e.Update, chat: e.Chat, seq: len(t.order)}
			t.updates[e.Update] = u
			t.order = append(t.order, u)
			continue
		}
		t.collectFault(e)
		u := t.updates[e.Update]
		if u == nil {
			continue
		}
		switch e.Kind {
		case journal.Acked:
			u.acked = append(u.acked, e)
		case journal.Begin:
			u.begins = append(u.begins, e)
		case journal.Wrote:
			u.writes = append(u.writes, e)
		}
	}
	for _, ids := range t.c.Ledgers {
		for _, id := range ids {
			if u := t.updates[id]; u != nil {
				u.inFinal = true
			}
		}
	}
}

func (t *trial) collectFault(e journal.Entry) {
	if e.Replica == "" {
		return
	}
	f := t.faults[e.Replica]
	if f == nil {
		f = &fault{}
		t.faults[e.Replica] = f
	}
	switch e.Kind {
	case journal.Killed:
		f.killed = true
		t.v.ReplicasKilled++
	case journal.Frozen:
		f.freezes = append(f.freezes, freeze{from: e.At, to: forever})
		t.v.ReplicasFrozen++
	case journal.Woken:
		if n := len(f.freezes); n > 0 {
			f.freezes[n-1].to = e.At
		}
	case journal.Terminated:
		t.v.ReplicasRolled++
	}
}

// outcomes puts each update into one of handled, skipped and lost.
func (t *trial) outcomes() {
	for _, u := range t.order {
		if len(u.acked) == 0 && len(u.writes) == 0 && t.c.Interrupted {
			continue
		}
		t.v.Sent++
		t.duplicates(u)
		switch {
		case len(u.writes) > 0 && u.inFinal:
			t.v.Handled++
		case len(u.writes) > 0:
			t.v.find("lost", &t.v.Lost, "update %d of chat %s: its write was wiped out by one made from an older copy", u.id, u.chat)
		case len(u.acked) == 0:
			t.v.find("lost", &t.v.Lost, "update %d of chat %s: no replica ever acknowledged it", u.id, u.chat)
		case t.excused(u.acked):
			t.v.Skipped++
		default:
			t.v.find("lost", &t.v.Lost, "update %d of chat %s: %s acknowledged it, met no fault, and did not handle it",
				u.id, u.chat, u.acked[len(u.acked)-1].Replica)
		}
	}
}

// excused: every replica that acknowledged it was killed, or frozen for its TTL after it had
// acknowledged. A post cannot be acknowledged by a frozen replica, so the acknowledgement comes
// before the freeze, or was read from the socket just after.
func (t *trial) excused(acked []journal.Entry) bool {
	for _, a := range acked {
		f := t.faults[a.Replica] // every replica of an entry has one
		frozen := func(z freeze) bool { return a.At < z.to && z.to-z.from >= t.c.TTL }
		if !f.killed && !slices.ContainsFunc(f.freezes, frozen) {
			return false
		}
	}
	return true
}

func (t *trial) duplicates(u *update) {
	for i := 1; i < len(u.writes); i++ {
		t.v.find("duplicate", &t.v.Duplicates, "update %d of chat %s was handled by %s and again by %s",
			u.id, u.chat, u.writes[i-1].Replica, u.writes[i].Replica)
	}
	var begun []string
	for _, a := range u.acked {
		if slices.ContainsFunc(u.begins, func(b journal.Entry) bool { return b.Attempt == a.Attempt }) {
			begun = append(begun, a.Replica)
		}
	}
	// What was written twice is counted already.
	for i := max(1, len(u.writes)); i < len(begun); i++ {
		t.v.find("duplicate", &t.v.Duplicates, "update %d of chat %s was acknowledged and begun by %s and again by %s",
			u.id, u.chat, begun[i-1], begun[i])
	}
}
