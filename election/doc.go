// Package election lets one replica lead a name: it is client/v3/concurrency.Election, with what
// that one leaves open closed.
//
//	    Lead                                     TryLead
//	      │                                         │
//	local queue (one contender of a name)           │ busy here: ErrNotElected
//	      ▼                                         ▼
//	 put candidate ──► wait ──► look at own key   put, if nobody is a candidate
//	      ▲              │        │       │         │
//	      └── key gone ◄─┴────────┘       ▼         ▼
//	                                Leadership (fence = create revision of the key)
//	                                  │        │         │
//	                               Resign   key gone   End
//	                                  │        │         │
//	                 key deleted, next here  Evicted   Expired, Stopped
//
// The keys are those of concurrency.Election, so any of its users may watch, and compete. An
// Elector belongs to one session and dies with it.
//
// # Guarantees
//
//   - At most one replica leads a name, as long as the trust window of its session is right. The
//     context of a Leadership ends, with a *fencing.LeaseLostError as its cause, before the session's
//     lease can.
//   - The fence of a leadership is larger than that of every earlier one of the name.
//   - A win is reported only after one transaction has seen the own key, under its create revision
//     and its lease, with no older candidate beside it, and while the session is believed in.
//   - A candidate key of ours is in etcd only while somebody here campaigns or leads, or until etcd
//     can be asked again. That holds for puts whose answer was lost, too: they carry the
//     registration's mod revision, and are no longer possible once that has moved on.
//   - Two callers here compete like two replicas: one after the other in the order of their calls,
//     and whoever comes next after a Resign queues behind the other replicas.
//   - Every call returns by its context, or when the elector ends, whatever etcd does.
//
// # Not guaranteed
//
//   - Work begun before a loss may still be under way when the next leader starts. What it writes must
//     carry the fence.
//   - A candidate key that somebody deletes by hand is noticed within about a second, not before the
//     next leader.
//   - The order between replicas is that of the puts, not that of the calls to Lead.
//
// # What the stock election gets from us
//
// concurrency.Election waits its turn; everything that writes is done here. It works on a view of
// the client (stock.go) in which its transactions read only, its requests are bounded, its watches
// can be broken off without giving the place up, and its session sends no renewals: the lease is
// renewed by internal/session alone, and believed in by nothing else.
//
// # Failures
//
//	the answer to the put is lost         settled: the key is found, or can never come any more
//	the watch dies, is compacted or hangs Campaign again under the same key: the place is kept
//	the key is deleted while waiting      a new candidate, at the end of the queue
//	the key is deleted while leading      Evicted
//	the answer to a delete is lost        deleted again, guarded by the create revision, until confirmed
//	etcd is full                          Lead waits until there is space, TryLead says no-space; Resign works
//	permission is missing                 both say denied, at once
//	the session ends                      leaderships end, calls return ErrSessionEnded; the lease takes the keys
package election
