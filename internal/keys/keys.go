// Package keys is the etcd schema: the only place that builds or parses a key.
//
// The layout is a wire format. Replicas of different versions share it, so golden tests pin it
// and a change of it needs a new version segment ("v2/").
//
//	P v1/replicas/E(id)                                registration of a replica
//	P v1/turns/E(key)/tickets/<lease hex>-<slot hex>   a place in the key's queue
//	P v1/turns/E(key)/holder                           who was granted last
//	P v1/inbox/<lease hex>/<slot hex>-E(key)           a nudge to one replica
//	P v1/elections/E(name)/<lease hex>                 concurrency.Election's own layout
//	P v1/leases/E(key)                                 a lease of the LeaseProvider
//
// P is the prefix, with its final slash. E escapes every byte that could be mistaken for
// structure, so no key's tree can be a prefix of another key's tree.
package keys

import (
	"strconv"
	"strings"
)

// Schema builds and parses the keys under one prefix.
type Schema struct{ prefix string }

// New returns the schema under prefix, to which a missing final slash is added.
func New(prefix string) Schema {
	if !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	return Schema{prefix: prefix}
}

// Prefix is the prefix with its final slash.
func (s Schema) Prefix() string { return s.prefix }

// Replicas is the tree of all registrations.
func (s Schema) Replicas() string { return s.prefix + "v1/replicas/" }

// Replica is the registration of one replica.
func (s Schema) Replica(id string) string { return s.Replicas() + Escape(id) }

// ParseReplica gives the replica id of a registration key.
func (s Schema) ParseReplica(etcdKey string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(etcdKey, s.Replicas())
	if !ok {
		return "", false
	}
	return Unescape(rest)
}

// Turns is the tree of all turn keys.
func (s Schema) Turns() string { return s.prefix + "v1/turns/" }

func (s Schema) turn(key string) string { return s.Turns() + Escape(key) + "/" }

// Tickets is the tree of one key's tickets.
func (s Schema) Tickets(key string) string { return s.turn(key) + "tickets/" }

// TicketsOf is the part of one key's tickets that belongs to one lease.
func (s Schema) TicketsOf(key string, lease int64) string {
	return s.Tickets(key) + hex(lease) + "-"
}

// Ticket is one ticket: the slot-th place that the session with this lease has in key's queue.
func (s Schema) Ticket(key string, lease int64, slot int) string {
	return s.TicketsOf(key, lease) + hex(int64(slot))
}

// ParseTicket takes a ticket's key apart.
func (s Schema) ParseTicket(etcdKey string) (key string, lease int64, slot int, ok bool) {
	rest, ok := strings.CutPrefix(etcdKey, s.Turns())
	if !ok {
		return "", 0, 0, false
	}
	escaped, place, ok := strings.Cut(rest, "/tickets/")
	if !ok {
		return "", 0, 0, false
	}
	if key, ok = Unescape(escaped); !ok {
		return "", 0, 0, false
	}
	leaseHex, slotHex, ok := strings.Cut(place, "-")
	if !ok {
		return "", 0, 0, false
	}
	lease, ok = unhex(leaseHex)
	if !ok {
		return "", 0, 0, false
	}
	slot, ok = unhexSlot(slotHex)
	return key, lease, slot, ok
}

// Holder is the record of who was granted key last.
func (s Schema) Holder(key string) string { return s.turn(key) + "holder" }

// Inbox is the tree of messages to the replica whose session has this lease.
func (s Schema) Inbox(lease int64) string { return s.prefix + "v1/inbox/" + hex(lease) + "/" }

// Nudge is the message that tells one ticket to look whether it is head. Its name is the
// ticket's, so that it is reused like the slot.
func (s Schema) Nudge(key string, lease int64, slot int) string {
	return s.Inbox(lease) + hex(int64(slot)) + "-" + Escape(key)
}

// ParseNudge takes a nudge in the inbox of lease apart.
func (s Schema) ParseNudge(etcdKey string, lease int64) (key string, slot int, ok bool) {
	rest, ok := strings.CutPrefix(etcdKey, s.Inbox(lease))
	if !ok {
		return "", 0, false
	}
	slotHex, escaped, ok := strings.Cut(rest, "-")
	if !ok {
		return "", 0, false
	}
	if slot, ok = unhexSlot(slotHex); !ok {
		return "", 0, false
	}
	key, ok = Unescape(escaped)
	return key, slot, ok
}

// Election is the name to give to concurrency.NewElection, which adds the slash itself.
func (s Schema) Election(name string) string { return s.prefix + "v1/elections/" + Escape(name) }

// Candidates is the tree of an election's candidates (what concurrency.ResumeElection wants).
func (s Schema) Candidates(name string) string { return s.Election(name) + "/" }

// Candidate is the key that concurrency.Election uses for the session with this lease.
func (s Schema) Candidate(name string, lease int64) string { return s.Candidates(name) + hex(lease) }

// Lease is the key of one LeaseProvider lease.
func (s Schema) Lease(key string) string { return s.Leases() + Escape(key) }

// Leases is the tree of all LeaseProvider leases.
func (s Schema) Leases() string { return s.prefix + "v1/leases/" }

func hex(n int64) string { return strconv.FormatInt(n, 16) }

// unhex is strict: what hex would not have written is not a number of ours.
func unhex(x string) (int64, bool) {
	n, err := strconv.ParseInt(x, 16, 64)
	return n, err == nil && n >= 0 && hex(n) == x
}

// unhexSlot refuses what an int of this machine would cut down to another slot.
func unhexSlot(x string) (int, bool) {
	n, ok := unhex(x)
	return int(n), ok && int64(int(n)) == n
}
