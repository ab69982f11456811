package judge

import "github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"

// staleWrites looks at the fences again, without trust in the store's own watermark.
func (t *trial) staleWrites() {
	highest := make(map[string]int64) // chat, or the cron under its name, -> largest fence admitted
	version := make(map[string]int64) // chat -> version of its ledger
	for _, e := range t.entries {
		switch e.Kind {
		case journal.WriteRefused, journal.BeatRefused:
			t.v.StaleWritesOffered++
			continue
		case journal.Begin, journal.Beat:
			if e.Chat == "" {
				continue // no turn, no fence
			}
		case journal.Wrote:
			if e.Chat == "" {
				continue
			}
			t.staleWrite(e, highest[e.Chat], version[e.Chat])
			version[e.Chat] = e.Version
		default:
			continue
		}
		if e.Kind == journal.Beat && e.Fence < highest[e.Chat] {
			t.v.StaleWritesOffered++
			t.v.find("stale write", &t.v.StaleWritesAccepted, "heartbeat of %s with fence %d accepted after fence %d",
				e.Replica, e.Fence, highest[e.Chat])
		}
		highest[e.Chat] = max(highest[e.Chat], e.Fence)
	}
}

func (t *trial) staleWrite(e journal.Entry, highest, version int64) {
	switch {
	case e.Fence < highest:
		t.v.find("stale write", &t.v.StaleWritesAccepted, "chat %s: %s wrote update %d with fence %d after fence %d",
			e.Chat, e.Replica, e.Update, e.Fence, highest)
	case e.Base != version:
		t.v.find("stale write", &t.v.StaleWritesAccepted, "chat %s: %s wrote update %d over version %d, from a copy of version %d",
			e.Chat, e.Replica, e.Update, version, e.Base)
	default:
		return
	}
	t.v.StaleWritesOffered++
}

// leaders: once another leader's heartbeat was accepted, the earlier term is over for good.
func (t *trial) leaders() {
	type term struct {
		replica string
		fence   int64
	}
	over := make(map[string]map[term]bool)
	current := make(map[string]term)
	for _, e := range t.entries {
		if e.Kind != journal.Beat {
			continue
		}
		now, before := term{e.Replica, e.Fence}, current[e.Chat]
		if over[e.Chat] == nil {
			over[e.Chat] = make(map[term]bool)
		}
		if over[e.Chat][now] {
			t.v.find("overlap", &t.v.Overlaps, "%s: %s (fence %d) led while %s (fence %d) did",
				e.Chat, now.replica, now.fence, before.replica, before.fence)
		}
		if now != before {
			over[e.Chat][before] = true
			current[e.Chat] = now
			delete(over[e.Chat], now) // counted once per change, not once per beat
		}
	}
}
