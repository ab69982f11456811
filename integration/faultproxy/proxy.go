package faultproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is one of the two ways through the proxy.
type Direction int

const (
	ToServer Direction = iota // what the client sends: requests
	ToClient                  // what the server sends: answers
)

func (d Direction) String() string {
	if d == ToServer {
		return "to server"
	}
	return "to client"
}

// both is what a verb without directions means.
var both = []Direction{ToServer, ToClient}

// dialTimeout bounds the dialling of a target that does not even refuse.
const dialTimeout = 5 * time.Second

// Proxy forwards TCP connections to a target. Make one with New.
type Proxy struct {
	listener net.Listener
	ctx      context.Context // ends with Close; interrupts dialling
	cancel   context.CancelFunc
	work     sync.WaitGroup // accept loop, one per connection, and their pumps

	mu       sync.Mutex // guards everything below and all fields of link and half said to be so
	target   string
	fault    [2]faults // by Direction
	refusing bool
	closed   bool
	links    map[*link]struct{}
	counted  [2]counters
	changed  chan struct{} // closed and replaced whenever something that can be waited for changes
}

// faults are those that connections to come get, too.
type faults struct {
	hold  bool
	drop  bool
	delay time.Duration
}

// New listens on a free port of the loopback interface and forwards to target (host:port).
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faultproxy: cannot listen: %w", err)
	}
	return Serve(listener, target), nil
}

// Serve is New on a listener of the caller's choice, which Close closes.
func Serve(listener net.Listener, target string) *Proxy {
	p := &Proxy{listener: listener, target: target, links: map[*link]struct{}{}, changed: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.work.Go(p.accept)
	return p
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() net.Addr { return p.listener.Addr() }

// Endpoint is Addr as host:port, as etcd clients want it.
func (p *Proxy) Endpoint() string { return p.listener.Addr().String() }

// SetTarget changes where connections to come are forwarded to.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Close resets all connections, frees the port and waits for the proxy's goroutines. It may be
// repeated.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.cutLocked()
	p.announce()
	p.mu.Unlock()

	p.cancel()
	_ = p.listener.Close() // the accept loop ends by this
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if p.ctx.Err() != nil {
				return
			}
			// Out of file descriptors, or a connection reset before it was accepted: both pass.
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(5 * time.Millisecond):
			}
			continue
		}
		p.admit(client)
	}
}

// admit makes a link of an accepted connection, unless new ones are refused.
func (p *Proxy) admit(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refusing {
		reset(client)
		return
	}
	l := newLink(p, client)
	p.links[l] = struct{}{}
	p.announce()
	p.work.Go(l.run)
}

// forget is called once for each link, when all its goroutines have ended.
func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.finish()
	delete(p.links, l)
	p.announce()
}

// reset closes conn so that its peer sees a reset and not an orderly end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
