package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/fleet"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/ledger"
)

// Fault is one kind of fault.
type Fault string

// The faults.
const (
	Kill   Fault = "kill"
	Freeze Fault = "freeze"
	Roll   Fault = "roll"
)

// Available are the faults that this system can make.
func Available() []Fault {
	all := []Fault{Kill}
	if fleet.CanFreeze {
		all = append(all, Freeze)
	}
	if fleet.CanStop {
		all = append(all, Roll)
	}
	return all
}

// Parse reads a list like "kill,freeze,roll", or "none".
func Parse(list string) ([]Fault, error) {
	if list == "none" {
		return nil, nil
	}
	var faults []Fault
	for _, word := range strings.Split(list, ",") {
		f := Fault(strings.TrimSpace(word))
		if f != Kill && f != Freeze && f != Roll {
			return nil, fmt.Errorf("unknown fault %q: use kill, freeze and roll, separated by commas, or none", word)
		}
		if !slices.Contains(Available(), f) {
			return nil, fmt.Errorf("the fault %q is not available on this system: it has no such signal (available: %v)", f, Available())
		}
		faults = append(faults, f)
	}
	return faults, nil
}

const (
	calm   = 2500 * time.Millisecond // between two faults
	chance = 5 * time.Second         // how long to wait for a good moment
	choosy = 2 * time.Second         // how long of that to insist on the leader
	beyond = time.Second             // how much longer than the TTL a freeze lasts, at least
	settle = time.Second             // for a woken replica to find out what it has lost
)

// Takes is how long a fault takes, from the end of the one before until all is well again.
func (f Fault) Takes(ttl time.Duration) time.Duration {
	switch f {
	case Kill:
		return calm + ttl + 2*time.Second
	case Freeze:
		return calm + ttl + beyond + settle + time.Second
	}
	return calm + 2500*time.Millisecond
}

// Director makes the faults.
type Director struct {
	fleet   *fleet.Fleet
	journal *journal.Journal
	open    *journal.Open
	ttl     time.Duration

	mu     sync.Mutex // guards armed and struck
	armed  *trap
	struck map[string]bool // names that had a fault

	// writers has a lock of its own: it is taken under the journal's, so nothing else may be
	// waited for under it.
	writersMu sync.Mutex
	writers   map[string]string // chat -> replica whose write was accepted last
}

// trap is set for the next write that fits.
type trap struct {
	only   string // this replica only, until choosy; "" for any
	choosy time.Time
	caught chan *catch
}

// catch is a replica in the middle of a write.
type catch struct {
	process *fleet.Process
	call    ledger.Call
	letGo   chan struct{} // to be closed: the store then asks for the rest of the write
}

// New makes a director for sessions of the given TTL.
func New(f *fleet.Fleet, j *journal.Journal, open *journal.Open, ttl time.Duration) *Director {
	d := &Director{
		fleet: f, journal: j, open: open, ttl: ttl,
		struck: make(map[string]bool), writers: make(map[string]string),
	}
	j.Tap(func(e journal.Entry) {
		if e.Kind == journal.Wrote {
			d.writersMu.Lock()
			d.writers[e.Chat] = e.Replica
			d.writersMu.Unlock()
		}
	})
	return d
}

// BeforeWrite is the store's hook. It holds up the write that walks into the trap.
func (d *Director) BeforeWrite(call ledger.Call) {
	if c := d.catch(call); c != nil {
		<-c.letGo
	}
}

func (d *Director) catch(call ledger.Call) *catch {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.armed
	if t == nil || call.Chat == "" || t.only != "" && t.only != call.Replica && time.Now().Before(t.choosy) {
		return nil
	}
	process := d.fleet.Find(call.Replica)
	if process == nil || !d.open.SharedWith(call.Chat, call.Replica) {
		return nil
	}
	if d.struck[process.Name] && time.Now().Before(t.choosy) {
		return nil // another one, if there is one in time
	}
	d.armed = nil
	c := &catch{process: process, call: call, letGo: make(chan struct{})}
	t.caught <- c
	return c
}

// Run makes the faults in order. After each, when the replicas are whole again, it calls healed.
// Cancelling ctx ends it at once, with nothing left frozen.
func (d *Director) Run(ctx context.Context, faults []Fault, healed func()) error {
	for _, f := range faults {
		if err := pause(ctx, calm); err != nil {
			return err
		}
		if err := d.fleet.WaitReady(ctx); err != nil {
			return err
		}
		var err error
		switch f {
		case Kill:
			err = d.kill(ctx)
		case Freeze:
			err = d.freeze(ctx)
		case Roll:
			err = d.roll(ctx)
		}
		if err != nil {
			return err
		}
		healed()
	}
	return nil
}

func (d *Director) remark(p *fleet.Process, format string, args ...any) {
	d.journal.Add(journal.Entry{Kind: journal.Remark, Replica: p.Incarnation, Note: fmt.Sprintf(format, args...)})
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
