package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
)

// handling is one handler's work on one update, as the store saw it.
type handling struct {
	u        *update
	replica  string
	from, to time.Duration
	accepted bool
}

// handlings pairs every write, accepted or refused, with the begin before it by the same attempt,
// in the order of their begins, per chat. A begin without a write had no effect on the store.
func (t *trial) handlings() map[string][]*handling {
	type attempt struct {
		update, number int64
	}
	begun := make(map[attempt]*handling)
	perChat := make(map[string][]*handling)
	for _, e := range t.entries {
		u := t.updates[e.Update]
		if u == nil || e.Chat == "" {
			continue
		}
		key := attempt{e.Update, e.Attempt}
		switch e.Kind {
		case journal.Begin:
			h := &handling{u: u, replica: e.Replica, from: e.At, to: e.At}
			begun[key] = h
			perChat[e.Chat] = append(perChat[e.Chat], h)
		case journal.Wrote, journal.WriteRefused:
			if h := begun[key]; h != nil {
				h.to, h.accepted = e.At, e.Kind == journal.Wrote
			}
		}
	}
	for _, hs := range perChat {
		for _, h := range hs {
			if !h.accepted {
				h.to = t.cutByFreeze(h)
			}
		}
	}
	return perChat
}

// cutByFreeze ends a handling whose write was refused at the moment in which its replica was
// frozen. From then on it could not know, and the fence has kept it from doing harm.
func (t *trial) cutByFreeze(h *handling) time.Duration {
	for _, z := range t.faults[h.replica].freezes {
		if z.from < h.to && z.to > h.from {
			return max(z.from, h.from)
		}
	}
	return h.to
}

func (t *trial) orderAndOverlaps() {
	for chat, hs := range t.handlings() {
		t.overlapsOf(chat, hs)
		t.disorderOf(chat, hs)
	}
}

// overlapsOf counts the handlings that began before an earlier one had ended.
func (t *trial) overlapsOf(chat string, hs []*handling) {
	var last *handling // the one with the latest end so far
	for _, h := range hs {
		if h.to == h.from && !h.accepted {
			continue // no write, or frozen at once
		}
		if last != nil && h.from < last.to {
			t.v.find("overlap", &t.v.Overlaps, "chat %s: %s began update %d at %v while %s was at update %d until %v",
				chat, h.replica, h.u.id, h.from.Round(time.Millisecond), last.replica, last.u.id, last.to.Round(time.Millisecond))
		}
		if last == nil || h.to > last.to {
			last = h
		}
	}
}

// disorderOf counts each accepted handling that comes after one of a later update, by its begin
// or by its write.
func (t *trial) disorderOf(chat string, hs []*handling) {
	byBegin := slices.DeleteFunc(slices.Clone(hs), func(h *handling) bool { return !h.accepted })
	byWrite := slices.Clone(byBegin)
	slices.SortStableFunc(byWrite, func(a, b *handling) int { return cmp.Compare(a.to, b.to) })
	after := make(map[*handling]*handling) // a handling -> one of a later update that came before it
	for _, order := range [][]*handling{byBegin, byWrite} {
		var newest *handling
		for _, h := range order {
			if newest == nil || h.u.seq > newest.u.seq {
				newest = h
			} else if h.u != newest.u {
				after[h] = newest
			}
		}
	}
	for _, h := range byBegin {
		if before := after[h]; before != nil {
			t.v.find("out of order", &t.v.OutOfOrder, "chat %s: update %d was handled after update %d, which had been sent later",
				chat, h.u.id, before.u.id)
		}
	}
}
