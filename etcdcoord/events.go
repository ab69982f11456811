package etcdcoord

import "time"

// Event is something that happened to this replica or its peers. Listen with On.
type Event interface{ event() }

// SessionLost says that the session ended without Stop. Whatever was held is lost already.
type SessionLost struct {
	At  time.Time
	Err error
}

// SessionRestored says that a new session exists, Gap after the former one was lost.
type SessionRestored struct {
	At  time.Time
	Gap time.Duration
	// ClusterChanged: another cluster id, or a revision below the highest one seen. etcd was
	// probably restored from a snapshot, and fences of before may be larger than those to come.
	ClusterChanged bool
}

// TurnLost says that a turn was lost, or ended by Stop. Err is its *LeaseLostError.
type TurnLost struct {
	At    time.Time
	Key   string
	Fence Token
	Err   error
}

// LeadershipGained says that this replica leads.
type LeadershipGained struct {
	At    time.Time
	Name  string
	Fence Token
}

// LeadershipLost says that a leadership was lost, or ended by Stop; a Resign is no loss. Err is its
// *LeaseLostError.
type LeadershipLost struct {
	At    time.Time
	Name  string
	Fence Token
	Err   error
}

// TicketSkipped says that a ticket of a dead replica stood ahead of one of ours and is gone. Its
// message was reserved and is handled by nobody, unless its replica had finished it.
type TicketSkipped struct {
	At      time.Time
	Key     string
	Fence   Token
	Replica string
}

// ReplicaJoined says that another replica registered after this one began to look.
type ReplicaJoined struct {
	At      time.Time
	Replica string
}

// ReplicaLeft says that another replica's session ended. Crashed is a hint: it did not say
// beforehand that it was stopping.
type ReplicaLeft struct {
	At      time.Time
	Replica string
	Crashed bool
}

func (SessionLost) event()      {}
func (SessionRestored) event()  {}
func (TurnLost) event()         {}
func (LeadershipGained) event() {}
func (LeadershipLost) event()   {}
func (TicketSkipped) event()    {}
func (ReplicaJoined) event()    {}
func (ReplicaLeft) event()      {}

// On calls listener for every event of type E from now on: On[TurnLost] hears one kind, On[Event]
// all of them, in order across kinds.
//
// Delivery is in order, one at a time per listener, and nothing is dropped; a slow listener delays
// only itself, and its queue grows meanwhile. A listener may call any verb, Stop and its own
// unsubscribe included. After unsubscribe no new delivery begins.
func On[E Event](c *Coordinator, listener func(E)) (unsubscribe func()) {
	return c.events.Listen(func(event Event) {
		if e, ok := event.(E); ok {
			listener(e)
		}
	})
}
