// Package relay hands values to listeners: in order, one at a time per listener, none dropped,
// and never at the sender's cost. Each listener has a queue of its own without a bound; a
// goroutine serves it only while something is in it.
package relay

import (
	"bytes"
	"context"
	"runtime"
	"sync"
)

// Relay fans out values of one type. The zero value is ready.
type Relay[T any] struct {
	mu        sync.Mutex // guards the fields below, and the queues of all listeners
	listeners []*listener[T]
	serving   int             // listeners being served, removed ones too
	servers   map[string]bool // the goroutines that serve them, once they run
	draining  int             // of these, how many wait in Drain themselves
	idle      chan struct{}   // closed when one of them is done or begins to drain; nil if nobody waits
}

type listener[T any] struct {
	call    func(T)
	queue   []T
	serving bool
	gone    bool
}

// Listen adds a listener for what is sent from now on. After the returned function has been called
// no new delivery begins; one that is under way goes on.
func (r *Relay[T]) Listen(call func(T)) (unsubscribe func()) {
	l := &listener[T]{call: call}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, l)
	return func() { r.remove(l) }
}

func (r *Relay[T]) remove(l *listener[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.gone, l.queue = true, nil
	for i, other := range r.listeners {
		if other == l {
			// A new slice: Send may be going through the old one.
			r.listeners = append(append([]*listener[T]{}, r.listeners[:i]...), r.listeners[i+1:]...)
			return
		}
	}
}

// Send queues v for every listener. It never blocks.
func (r *Relay[T]) Send(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.listeners {
		l.queue = append(l.queue, v)
		if !l.serving {
			l.serving = true
			r.serving++
			go r.serve(l)
		}
	}
}

// serve delivers until the queue is empty. The queue is the truth: the goroutine carries no value
// of its own, so nothing is lost between two of them.
func (r *Relay[T]) serve(l *listener[T]) {
	self := goroutine()
	r.mu.Lock()
	if r.servers == nil {
		r.servers = make(map[string]bool)
	}
	r.servers[self] = true
	for len(l.queue) > 0 && !l.gone {
		v := l.queue[0]
		l.queue = l.queue[1:]
		r.mu.Unlock()
		l.call(v)
		r.mu.Lock()
	}
	l.serving, l.queue = false, nil
	r.serving--
	delete(r.servers, self)
	r.wakeLocked()
	r.mu.Unlock()
}

// wakeLocked makes every Drain look again.
func (r *Relay[T]) wakeLocked() {
	if r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// Drain returns when everything that was sent has been delivered, or with ctx's cause.
//
// Called from inside a listener it cannot wait for that very delivery, nor for another listener that
// is in Drain as well: the two would wait for each other. It waits for all others.
func (r *Relay[T]) Drain(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	inside := r.servers[goroutine()]
	if inside {
		r.draining++
		defer func() { r.draining-- }()
		r.wakeLocked()
	}
	for r.serving > 0 && !(inside && r.serving == r.draining) {
		if r.idle == nil {
			r.idle = make(chan struct{})
		}
		idle := r.idle
		r.mu.Unlock()
		select {
		case <-idle:
			r.mu.Lock()
		case <-ctx.Done():
			r.mu.Lock()
			return context.Cause(ctx)
		}
	}
	return nil
}

// goroutine names the calling goroutine, "goroutine 42". The runtime tells it nowhere else, and
// without it a listener that stops its coordinator would wait for itself for ever.
func goroutine() string {
	var buf [64]byte
	line := buf[:runtime.Stack(buf[:], false)]
	if i := bytes.IndexByte(line, '['); i > 0 {
		line = line[:i]
	}
	return string(bytes.TrimSpace(line))
}
