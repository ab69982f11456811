// Package ledger is the protected resource of the demo: a store of one ledger per chat, held by
// the parent process and reached over loopback HTTP.
//
// A ledger is the list of the updates that were handled, in the order of handling. A handler
// reads it (Begin), works, and writes the longer list back (Write), the plain read-modify-write
// that loses data as soon as two handlers of one chat run at a time. The store does nothing
// against that but look at the fence, at both ends: a Begin or Write with a fence lower than the
// highest that was admitted for the chat is refused. It must look at the Begin as well. Were only
// writes to count, a holder that was passed over could still write between its successor's read
// and write, and the successor would wipe that out.
//
// Without fences (--coordinator none) everything is accepted, as any store would.
//
// A Write goes in two steps, "Expect: 100-continue": the handler has announced it and cannot take
// it back, the store asks for the body. BeforeWrite runs in between. That is where a process is
// frozen, if it is to wake up in the middle of a write that has meanwhile become stale.
//
// Updates without a chat have no turn and no fence. They are entered one by one, each at most
// once, in the ledger of the empty name.
package ledger
