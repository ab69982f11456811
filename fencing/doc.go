// Package fencing is the vocabulary of holding something that another process may believe to hold
// as well: tokens that rise with every grant, errors that say what was lost and why, leases with a
// time to live, and the two ways to refuse the work of a holder that is too late.
//
// # Why tokens
//
// A lock with a time limit cannot keep a process that was frozen, or cut off, from waking up and
// writing as if it still held the lock. No clock and no check before the write can: the freeze may
// come between the two. What can is the protected resource, if every write carries the [Token] it
// was made under and the resource refuses a lower token than it has seen.
//
//	A: acquire, 41   frozen ........................... write 41  refused
//	B:                       acquire, 42   write 42
//	                                           resource: highest is 42 from here on
//
// [Watermark] does this for a resource in memory. [Guard] does it for keys in the same etcd, without
// a memory of its own: the compare holds only while the holder's key is the one it was granted.
//
// # Who is authoritative
//
// etcd decides who holds. A token is the etcd revision at which the holder's key was created, so
// tokens rise across release, expiry, and restarts of everything. A holder is told until when it
// may believe, and that moment comes before anybody else can be granted the key, as long as clocks
// run at nearly the same rate. What was lost is reported as a *[LeaseLostError].
//
// # Leases
//
// [LeaseProvider] grants keys to owners for a time to live; its laws are numbered in its comment and
// checked by package fencingtest. [EtcdLeases] keeps one etcd key per lease,
//
//	P v1/leases/E(key)   {"owner": …, "ttl_ms": …, "lease": …}
//
// and every grant and every extension writes it on an etcd lease of its own:
//
//	Acquire      Renew        Release
//	  grant L1     grant L2
//	  put on L1    put on L2    delete
//	               revoke L1    revoke L2
//	   until U1 ──►  until U2 ──►
//	   timer: revoke L1          (timer: revoke L2)
//
// The revoke of an etcd lease takes the key along exactly if nothing has been written since, by
// whatever process, and makes a write that was lost on its way impossible. So expiry, clean-up
// after lost answers and the end of what was replaced are all the same act: revoke that lease. It
// may be late, repeated, or made by several processes at once.
//
// # Guarantees of EtcdLeases
//
//   - A grant ends no earlier than its Until, which is counted from before the first request was
//     sent: by a timer of the granting process to the millisecond, if etcd answers, and by etcd if
//     the process dies, then at most at the TTL rounded up to whole seconds, or raised to etcd's
//     minimum (2 s by default), plus etcd's own delay of about half a second.
//   - A grant whose answer took longer than the TTL is never reported as held.
//   - An extension that failed with ErrUnavailable leaves the earlier grant in force, until its
//     Until or the end that was asked for, whichever is sooner.
//   - After release and expiry neither key nor etcd lease remains. After a lost answer the same is
//     reached in the background, which goes on until etcd has confirmed it.
//   - A release never frees what its owner was granted later, in whatever order the requests arrive.
//   - A thousand leases cost timers, not goroutines.
//
// # What is not promised
//
//   - Fairness. Acquire does not wait, and whoever asks first after the end gets the key; package
//     tickets has a queue.
//   - Two processes that use the same owner name are one owner: each extends, shortens and releases
//     what the other holds.
//   - Across processes the end is exact only while the granting process lives, reaches etcd and has
//     not called Close. A grant that has ended by its TTL but not yet in etcd can be renewed, under
//     the same token, by another process of the same owner: nobody held the key in between.
//   - After a change of its leader etcd gives every lease its full time again, so a dead process's
//     lease can live that much longer.
//   - Restoring etcd from an old snapshot can move revisions, and thus tokens, back.
//
// # Failures
//
//	the answer to Acquire is lost       ErrUnavailable; the etcd lease is revoked in the background
//	the answer to an extension is lost  ErrUnavailable; the earlier grant stays, then both leases are revoked
//	the answer to Release is lost       ErrUnavailable; the etcd lease is revoked in the background
//	Release cannot reach etcd           ErrUnavailable; goes on in the background, but not past a new grant
//	the answer comes after the TTL      taken back; ErrUnavailable from Acquire, ErrLeaseLost from Renew
//	a timer fires late                  Acquire through the same provider revokes first: free on time
//	etcd is unreachable at the end      revoked when it is back, or ended by etcd itself
//	Close overtakes a verb              it may finish, else ErrClosed after almost two seconds; what an
//	                                    Acquire may have left is revoked, and a Release goes on, for two more
//	the process dies or calls Close     etcd ends the lease at its own, rounded up time
//	the machine was suspended           LeaseGrant.Left counts the time in suspend, and is 0
//	etcd's space is used up             Acquire and Renew fail with NoSpace; release and expiry work
//	the key is deleted by hand          free; Renew answers ErrLeaseLost
//	a value that cannot be read         held by somebody unknown: ErrHeld and one warning; never removed
//	a record without an etcd lease      held, and never ends: ErrHeld and one warning. Its own owner
//	                                    can extend it, which mends it, or release it
package fencing
