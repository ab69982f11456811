// Package replica is one replica of the demo's bot: a child process with a webhook on loopback.
//
// # What it does with a post
//
//	parse -> deadline passed? -> Reserve -> deadline passed? -> 2xx -> Acquire -> Begin -> work -> Write -> Release
//
// The place in the chat's queue is taken before the 2xx, while the platform still holds back the
// chat's next update: that is what makes the order of posts the order of turns, whichever replica
// each post went to. After the 2xx the update is this replica's, in memory only. When the replica
// dies it is gone: the coordinator orders, it does not store.
//
// # The post that nobody waits for any more
//
// A platform that gets no answer in time posts the update to another replica. A frozen replica may
// have the first post in a socket, or half-way through this code, and would handle the update
// again when it wakes up. Three things prevent it:
//
//   - The post carries its deadline, and the platform waits some time longer than that. The
//     deadline is looked at before Reserve and again after it. What comes too late is answered 503,
//     and a ticket that was taken is cancelled.
//   - A ticket from before a freeze that outlasted the TTL is dead: its session has ended, others
//     were let past it, and Acquire says so.
//   - What slips through (a stall shorter than the TTL, exactly between the second look and the
//     2xx) waits for a turn of the same chat as the second post. Whoever comes second finds the
//     update in the ledger, inside its turn, and writes nothing. An at-least-once platform demands
//     that of every bot; the turn is what makes look-then-write safe.
//
// # The handler
//
// It works under the turn's context, asks AssertHeld, and then writes with its fence. Between that
// last look and the write the process can be frozen for any time, and no client library can help:
// this is the write that the store must refuse.
//
// # Stopping
//
// SIGTERM: take no more posts, finish what was acknowledged, resign, Coordinator.Stop, exit 0. The
// end of standard input means that the parent is gone: exit at once.
package replica
