package tickets

import (
	"encoding/json"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
)

// record is the value of a key's holder: to whom the turn was granted last.
//
// A record that was put by the very transaction that made the ticket (an eager one) cannot know
// its fence, which is that transaction's revision: it carries none, and its ModRevision is the fence.
type record struct {
	Replica     string `json:"replica"`
	Incarnation string `json:"incarnation"`
	Fence       int64  `json:"fence,omitempty"`
}

// unknown is the previous holder of whom nothing certain can be said.
var unknown = record{}

func (r record) known() bool { return r != unknown }

func (r record) sameProcess(o record) bool {
	return r.Replica == o.Replica && r.Incarnation == o.Incarnation
}

func (r record) with(fence int64) record {
	r.Fence = fence
	return r
}

// encode gives the same bytes for the same record: they are compared in etcd.
func (r record) encode() string {
	b, err := json.Marshal(r)
	if err != nil { // two strings and a number: cannot happen
		panic(err)
	}
	return string(b)
}

// readRecord reads what a transaction found under holder. Absent or foreign is unknown.
func (q *Queue) readRecord(kvs []*mvccpb.KeyValue) record {
	if len(kvs) == 0 {
		return unknown
	}
	kv := kvs[0]
	var r record
	if err := json.Unmarshal(kv.Value, &r); err != nil || r.Replica == "" {
		q.warnStrange(string(kv.Key), "holder record does not parse, taken as unknown")
		return unknown
	}
	if r.Fence == 0 {
		r.Fence = kv.ModRevision
	}
	return r
}

// judge makes of the record found by the grant of fence what the new holder may be told.
func (q *Queue) judge(key string, found record, fence int64) (prev record, warm bool) {
	switch {
	case !found.known():
		return unknown, false
	case found.Fence == fence:
		// The grant was repeated and reads its own first attempt: that one's answer is lost.
		return unknown, false
	case !found.sameProcess(q.me):
		return found, false
	case q.cfg.History.heldLast(key, found.Fence):
		return found, true
	}
	// This process was granted that turn and never held it; who held before is lost with the answer.
	return unknown, false
}

// ticketValue is the value of a ticket's key. It is for people: nothing here reads it.
type ticketValue struct {
	Replica     string `json:"replica"`
	Incarnation string `json:"incarnation"`
	Note        string `json:"note,omitempty"`
	ReservedAt  string `json:"reserved_at"`
}
