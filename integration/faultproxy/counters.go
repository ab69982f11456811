package faultproxy

import (
	"context"
	"fmt"
	"net"
)

// counters count the bytes of all connections since New, of one direction.
type counters struct{ received, forwarded int64 }

// Received is how many bytes have arrived from the sender, whatever became of them.
func (p *Proxy) Received(dir Direction) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counted[dir].received
}

// Forwarded is how many bytes were handed to the receiver's socket.
func (p *Proxy) Forwarded(dir Direction) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counted[dir].forwarded
}

// Held is how many bytes wait for Resume, or for the end of their delay, on open connections.
func (p *Proxy) Held(dir Direction) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heldLocked(dir)
}

func (p *Proxy) heldLocked(dir Direction) int64 {
	var n int64
	for l := range p.links {
		n += l.halves[dir].queued
	}
	return n
}

// Connections is how many connections are open through the proxy.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// WaitReceived waits until Received(dir) is at least n. Take Received before the request and wait
// for one more: it then has left the client.
func (p *Proxy) WaitReceived(ctx context.Context, dir Direction, n int64) error {
	return p.wait(ctx, func() (int64, bool) { got := p.counted[dir].received; return got, got >= n },
		fmt.Sprintf("%d bytes received %v", n, dir))
}

// WaitForwarded waits until Forwarded(dir) is at least n.
func (p *Proxy) WaitForwarded(ctx context.Context, dir Direction, n int64) error {
	return p.wait(ctx, func() (int64, bool) { got := p.counted[dir].forwarded; return got, got >= n },
		fmt.Sprintf("%d bytes forwarded %v", n, dir))
}

// WaitHeld waits until Held(dir) is at least n.
func (p *Proxy) WaitHeld(ctx context.Context, dir Direction, n int64) error {
	return p.wait(ctx, func() (int64, bool) { got := p.heldLocked(dir); return got, got >= n },
		fmt.Sprintf("%d bytes held %v", n, dir))
}

// WaitConnections waits until exactly n connections are open.
func (p *Proxy) WaitConnections(ctx context.Context, n int) error {
	return p.wait(ctx, func() (int64, bool) { return int64(len(p.links)), len(p.links) == n },
		fmt.Sprintf("%d connections", n))
}

func (p *Proxy) wait(ctx context.Context, reached func() (int64, bool), what string) error {
	for {
		p.mu.Lock()
		got, ok := reached()
		closed, changed := p.closed, p.changed
		p.mu.Unlock()
		switch {
		case ok:
			return nil
		case closed:
			return fmt.Errorf("faultproxy: waiting for %s, have %d: %w", what, got, net.ErrClosed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("faultproxy: waiting for %s, have %d: %w", what, got, context.Cause(ctx))
		}
	}
}

// announce wakes those who wait for a change. Needs p.mu.
func (p *Proxy) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}
