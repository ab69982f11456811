package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/fleet"
)

// ambush waits for a replica in the middle of a write that fits, and takes any replica if none
// comes in time. Whoever gets a catch must let it go.
func (d *Director) ambush(ctx context.Context, prefer string) (*catch, error) {
	t := &trap{only: prefer, choosy: time.Now().Add(choosy), caught: make(chan *catch, 1)}
	d.mu.Lock()
	d.armed = t
	d.mu.Unlock()
	timer := time.NewTimer(chance)
	defer timer.Stop()
	select {
	case c := <-t.caught:
		return c, nil
	case <-ctx.Done():
	case <-timer.C:
	}
	d.mu.Lock()
	d.armed = nil // from here on nobody else can walk in
	d.mu.Unlock()
	select {
	case c := <-t.caught: // somebody just did
		return c, nil
	default:
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p, err := d.untouched()
	if err != nil {
		return nil, err
	}
	return &catch{process: p, letGo: make(chan struct{})}, nil
}

// untouched is a running replica, one that had no fault yet if there is one.
func (d *Director) untouched() (*fleet.Process, error) {
	var any *fleet.Process
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.fleet.Current() {
		if p.View().State != fleet.Running {
			continue
		}
		if !d.struck[p.Name] {
			return p, nil
		}
		any = p
	}
	if any == nil {
		return nil, errors.New("no replica is running")
	}
	return any, nil
}

func (d *Director) strike(p *fleet.Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.struck[p.Name] = true
}

// where says in what the catch was caught.
func (c *catch) where() string {
	if c.call.Chat == "" {
		return "at no particular moment"
	}
	return fmt.Sprintf("in the middle of writing update %d of chat %s", c.call.Update, c.call.Chat)
}

func (d *Director) kill(ctx context.Context) error {
	counts, _ := d.open.Counts()
	c, err := d.ambush(ctx, counts.Leader)
	if err != nil {
		return err
	}
	defer close(c.letGo)
	p := c.process
	d.strike(p)
	load := d.open.LoadOf(p.Incarnation)
	if err := p.Kill(); err != nil {
		return err
	}
	d.remark(p, "killed %s; %d acknowledged updates die with it", c.where(), load.Open)
	select {
	case <-p.Exited():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return d.replace(ctx, p)
}

func (d *Director) freeze(ctx context.Context) error {
	c, err := d.ambush(ctx, "")
	if err != nil {
		return err
	}
	letGo := sync.OnceFunc(func() { close(c.letGo) })
	defer letGo()
	p := c.process
	d.strike(p)
	load := d.open.LoadOf(p.Incarnation)
	if err := p.Freeze(); err != nil {
		return err
	}
	began := time.Now()
	d.forgetWriter(c.call.Chat)
	defer func() { _ = p.Wake() }() // no error may leave it frozen; waking twice is harmless
	d.remark(p, "frozen %s; %d acknowledged updates wait there", c.where(), load.Open)
	if err := pause(ctx, d.ttl+beyond); err != nil {
		return err
	}
	// The stale write is one only when a rival has been let in. A rival that takes long (etcd
	// changed its leader: leases then live longer) is waited for.
	for c.call.Chat != "" && !d.rivalWrote(c) && time.Since(began) < 3*d.ttl+beyond {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	if err := p.Wake(); err != nil {
		return err
	}
	letGo()
	d.remark(p, "woken after %v", time.Since(began).Round(10*time.Millisecond))
	return pause(ctx, settle)
}

func (d *Director) forgetWriter(chat string) {
	d.writersMu.Lock()
	defer d.writersMu.Unlock()
	delete(d.writers, chat)
}

func (d *Director) rivalWrote(c *catch) bool {
	d.writersMu.Lock()
	defer d.writersMu.Unlock()
	writer := d.writers[c.call.Chat]
	return writer != "" && writer != c.call.Replica
}

func (d *Director) roll(ctx context.Context) error {
	p, err := d.untouched()
	if err != nil {
		return err
	}
	d.strike(p)
	load := d.open.LoadOf(p.Incarnation)
	began := time.Now()
	if err := p.Terminate(); err != nil {
		return err
	}
	d.remark(p, "asked to stop; it finishes %d acknowledged updates first", load.Open)
	select {
	case <-p.Exited():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	d.remark(p, "stopped in %v", time.Since(began).Round(time.Millisecond))
	return d.replace(ctx, p)
}

// replace starts a fresh process under the name of one that is gone, and waits for it.
func (d *Director) replace(ctx context.Context, p *fleet.Process) error {
	fresh, err := d.fleet.Start(p.Name)
	if err != nil {
		return err
	}
	select {
	case <-fresh.Ready():
		return nil
	case <-d.fleet.Failed():
		return d.fleet.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
