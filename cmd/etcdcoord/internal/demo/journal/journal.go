// Package journal is the demo's record of what happened: what the platform posted and got
// acknowledged, what the store was asked for and what it did, which faults were made and when.
//
// All of it is written by the parent process, with one monotonic clock and in one order. Nothing
// in it rests on what a replica says about itself, with one exception, GaveUp, which tells the
// run when to stop waiting and which no judgement uses.
package journal

import (
	"sync"
	"time"
)

// Kind is what an entry tells.
type Kind string

// The platform's entries. Update and Chat are set in all of them, Replica and Attempt in all but Sent.
const (
	Sent    Kind = "sent"    // the update was given to the platform; the order of these is the order to keep
	Acked   Kind = "acked"   // a replica answered 2xx in time; from here on the update is its
	Unacked Kind = "unacked" // it did not; the update goes to another replica
)

// The store's entries.
const (
	Begin        Kind = "begin"         // a handler read the ledger of Chat: it believes to have the turn
	BeginRefused Kind = "begin-refused" // its fence was stale
	Wrote        Kind = "wrote"         // it wrote the ledger back: the update is handled
	WriteRefused Kind = "write-refused" // its fence was stale
	Already      Kind = "already"       // it found Update in the ledger, so it wrote nothing
	Beat         Kind = "beat"          // the leader's heartbeat, accepted
	BeatRefused  Kind = "beat-refused"  // its fence was stale
	GaveUp       Kind = "gave-up"       // a replica says that it will not handle Update
)

// The entries of the processes and the faults. Replica is set in all of them.
const (
	Started    Kind = "started"    // the process runs
	Ready      Kind = "ready"      // it takes posts
	Killed     Kind = "killed"     // SIGKILL
	Frozen     Kind = "frozen"     // SIGSTOP
	Woken      Kind = "woken"      // SIGCONT
	Terminated Kind = "terminated" // asked to stop gracefully
	Exited     Kind = "exited"     // the process is gone
	Says       Kind = "says"       // what a replica tells about itself, for the reader
	Remark     Kind = "remark"     // what the run tells, for the reader; Replica may be empty
)

// Entry is one thing that happened.
type Entry struct {
	At      time.Duration // since the run began, monotonic, never falling
	Kind    Kind
	Replica string // the incarnation, "replica-2#1": a restarted process is another one
	Update  int64
	Chat    string
	Attempt int64 // the number of the platform's post; unique over the run
	Fence   int64
	Base    int64  // Wrote: the version of the ledger that the handler had read
	Version int64  // Begin: the version read. Wrote: the version written
	Note    string // for the reader
}

// Journal collects entries.
type Journal struct {
	start time.Time

	mu      sync.Mutex
	entries []Entry
	taps    []func(Entry)
}

// New returns an empty journal whose clock starts now.
func New() *Journal { return &Journal{start: time.Now()} }

// Tap hands every later entry to f, in order. f runs under the journal's lock: it must be quick
// and must not add entries.
func (j *Journal) Tap(f func(Entry)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.taps = append(j.taps, f)
}

// Add stamps e and appends it.
func (j *Journal) Add(e Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.At = time.Since(j.start) // under the lock, so that the order of entries is the order of times
	j.entries = append(j.entries, e)
	for _, tap := range j.taps {
		tap(e)
	}
}

// Now is the journal's clock.
func (j *Journal) Now() time.Duration { return time.Since(j.start) }

// Entries is a copy of what has happened so far.
func (j *Journal) Entries() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]Entry(nil), j.entries...)
}
