// Package tickets is the FIFO of each key across all replicas: who reserved first is granted
// first, one at a time, and a dead replica's tickets are passed over.
//
// A bot uses it through package etcdcoord, which owns one Queue per epoch.
//
//	Reserve ──► Ticket ──► Acquire ──► Turn ──► Release
//	   │           │          │                    │
//	   │ answer    │ Cancel   │ gives up           │
//	   ▼ lost      └──────────┴──────► leave ◄─────┘
//	 settle ──── it was applied ────────►│
//	   │ it never can be                 ▼
//	   ▼                             the next one in line is nudged
//	 slot free
//
// # In etcd
//
// Two replicas, A (lease 7a) and B (lease 7b), and the key "chat 1": A holds, B waits, and B has a
// second ticket behind its first.
//
//	v1/replicas/A                        created at 10     {"incarnation":…,"lease":"7a"}
//	v1/replicas/B                        created at 11
//	v1/turns/chat%201/tickets/7a-0       created at 20     the head: A's turn, fence 20
//	v1/turns/chat%201/tickets/7b-0       created at 21     next
//	v1/turns/chat%201/tickets/7b-1       created at 25
//	v1/turns/chat%201/holder             {"replica":"A","incarnation":…}
//
// A ticket's place is its create revision, and so is its fence. Slot numbers are used again, since
// etcd remembers every deleted name until compaction.
//
// # The laws
//
//  1. The turn belongs to the ticket with the smallest create revision, and only once that
//     replica's own transaction, or the one that made the ticket, has said so.
//  2. Whatever deletes a ticket compares its create revision. Nothing deletes by name alone.
//  3. No request is repeated, and no slot is used again, before it is certain that an earlier
//     attempt with unknown outcome can no longer be applied.
//  4. A nudge proves nothing. It only makes its receiver ask etcd.
//  5. What is held is lost locally before etcd can give it away.
//
// # Guarantees
//
//   - At most one turn per key is believed in at any time; fences of a key rise.
//   - If one Reserve returned before another was called, its ticket is earlier.
//   - A ticket that is given up, in whatever way, leaves etcd for certain, or with its lease.
//   - The previous holder is true or unknown; Warm is true or false-to-be-safe.
//
// # Not guaranteed
//
//   - Work that began before a loss may still be in flight. The protected store has to compare the fence.
//   - A ticket that is deleted by hand is noticed by the audit, about a second later.
//
// # Failures
//
//	answer to Reserve lost        typed error; Settle makes sure that no ghost stays
//	answer to the grant lost      asked again; the previous holder is then unknown
//	answer to Release lost        the janitor repeats it until it is confirmed
//	nudge lost                    the audit finds the head within about a second
//	replica died                  its registration vanishes with its tickets: everybody looks
//	session lost                  every turn ends with Expired, every waiting ticket with Superseded
//	etcd full                     Reserve fails with no-space; releases and hand-overs go on, by audit
//	ticket deleted by hand        Evicted; the next in line proceeds
//	strange key in our tree       removed with a warning, if it has no lease or does not parse
package tickets
