// Package etcdcoord lets the replicas of a chat bot share the work through an etcd that they run
// anyway: each chat's messages are handled one at a time and in the order of their arrival, on
// whatever replica; one replica polls, runs cron, owns a shard; a replica that dies or freezes is
// passed over, and cannot write after its successor.
//
//	c, err := etcdcoord.New(client, etcdcoord.Config{})
//	err = c.Start(ctx)
//	defer c.Stop(ctx)
//
//	ticket, err := c.Reserve(ctx, chatID)      // fixes the place; then acknowledge the message
//	turn, err := c.AcquireTurn(ctx, ticket)    // waits
//	defer turn.Release(ctx)
//	ctx, cancel := turn.Bind(ctx)              // ends with the turn
//	store.Write(ctx, chatID, data, turn.Fence())
//
// # Lifecycle
//
//	New ──► Start ──► running ◄──────────────┐
//	          ▲          │ session lost      │ new epoch
//	          │          ▼                   │
//	          │       everything held ends ──► revoke, confirmed
//	          │
//	       stopped ◄── Stop
//
// An epoch is everything that lives and dies with one etcd session: the queue, the elections, the
// watches. It is replaced whole. What was held in a lost epoch stays lost; calls that wait for
// something in it, but for AcquireTurn, go on in the next one.
//
// # The trust window
//
// etcd ends a session that was not renewed for its TTL. This replica stops believing earlier: at
// the moment its last answered renewal was sent, plus the TTL, minus the safety margin. Then every
// context of a turn and a leadership ends, with a *LeaseLostError as its cause, while etcd still
// keeps everybody else waiting.
//
// # Guarantees
//
//   - At most one turn per key, and one leader per name, is believed in at any time.
//   - Turns are granted in the order of Reserve, over all replicas, among those that are still there.
//   - Fence() rises with every grant of a key, across crashes, restarts, idle clean-up and compaction.
//   - The holder is told before anybody else can be granted what it held.
//   - Every call returns by its context. Every error can be told with errors.Is or errors.As, and what
//     a lost answer may have left in etcd is cleaned up.
//
// # Not guaranteed
//
//   - Messages are not carried or stored. A message whose replica died is not handled by another.
//   - Work that began before a loss may still be in flight. The store that it writes to has to
//     compare fences (see fencing.Watermark, and Turn.Guard for data in the same etcd).
//   - Clocks have to run at nearly the same rate; they need not show the same time.
//   - After an etcd leader change or restart, a dead replica's places can live one more full TTL.
//   - etcd restored from an old snapshot can move revisions, and so fences, back. SessionRestored says so.
//
// # Failures
//
//	this replica is killed       others go on when its session expires: SessionTTL, and up to 1 s
//	this replica freezes         likewise; when it wakes, AssertHeld fails at once and fences refuse its writes
//	this replica is stopped      others go on at once
//	etcd cannot be reached       calls fail with ErrUnavailable; when the window ends everything held is lost;
//	                             a new epoch begins by itself when etcd is back
//	an answer is lost            the outcome is found out or undone in the background
//	a key is deleted by hand     Evicted, within about a second
//	two processes, one id        the second is refused by Start, naming the first
package etcdcoord
