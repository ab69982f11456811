// Package session is a replica's presence in etcd: one lease, one registration, and the trust
// window that says until when the replica may believe in them.
//
//	      Open                     Done is closed              Revoke
//	grant ────► register ────► trusted ────────────► ended ────────────► gone
//	             │  ▲              │  ▲                │                    │
//	 id in use ◄─┘  └─ wait        └──┘ renewal        │ the epoch ends     │ etcd has
//	                   for a dead       answered       │ all that was       │ confirmed
//	                   predecessor                     ▼ held               ▼
//
// # Who is authoritative
//
// etcd decides when the lease ends; the replica only decides when it stops believing in it, and
// it must stop first. The window is counted from the moment a renewal was sent, not from when its
// answer came: etcd restarts the TTL at some moment between the two, so etcd's expiry is never
// earlier than sent + TTL, and the window ends a safety margin before that.
//
// # Guarantees
//
//   - Check returns nil only inside the window. It compares the clock itself and needs no timer or
//     goroutine to have run, so it is right at once after the process was frozen.
//   - A session that ended stays ended: no late answer of a renewal revives it.
//   - Done is closed before etcd ends the lease, as long as clocks run at nearly the same rate.
//     A lease that is revoked by hand is noticed at the next renewal.
//   - The session never revokes its own lease. Whoever owns the session first tells everybody
//     that holds something, and then calls Revoke.
//
// # Failures
//
//	the answer to a grant is lost       an etcd lease without keys remains, and runs out by itself
//	the answer to registering is lost   the registration is read: its incarnation and lease tell
//	a renewal fails or hangs            the next one goes out on a fresh stream, until the window ends
//	etcd says that the lease is gone    ended at once
//	permission taken away               ended when the window ends; Err says so
package session
