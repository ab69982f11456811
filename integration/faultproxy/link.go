package faultproxy

import (
	"net"
	"sync"
)

// link is one connection through the proxy: two sockets and two halves.
//
// Lifecycle: run dials, starts two pumps for each half and ends when all four have ended. A half
// ends when its sender has ended and everything is delivered; its receiver then sees an orderly
// end. cut ends everything at once.
type link struct {
	proxy  *Proxy
	halves [2]*half // by Direction
	dead   chan struct{}

	// guarded by proxy.mu
	client net.Conn
	server net.Conn // nil until dialled
	over   bool
}

func newLink(p *Proxy, client net.Conn) *link {
	l := &link{proxy: p, client: client, dead: make(chan struct{})}
	for _, d := range both {
		l.halves[d] = &half{link: l, dir: d, held: p.fault[d].hold, wake: make(chan struct{}, 1)}
	}
	return l
}

func (l *link) run() {
	defer l.proxy.forget(l)

	var pumps sync.WaitGroup
	defer pumps.Wait()
	// The client's bytes are taken from the start, so that a black hole accepts and swallows, and
	// a client that goes away is noticed, before there is a server.
	toServer, toClient := l.halves[ToServer], l.halves[ToClient]
	pumps.Go(func() { toServer.receive(l.client) })
	if !toServer.waitNotDropping() {
		return
	}
	server, err := l.dial()
	if err != nil {
		l.proxy.mu.Lock()
		defer l.proxy.mu.Unlock()
		l.cut()
		return
	}
	pumps.Go(func() { toServer.deliver(server) })
	pumps.Go(func() { toClient.receive(server) })
	pumps.Go(func() { toClient.deliver(l.client) })
}

func (l *link) dial() (net.Conn, error) {
	l.proxy.mu.Lock()
	target := l.proxy.target
	l.proxy.mu.Unlock()

	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(l.proxy.ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.over { // meanwhile; cut did not see this socket
		reset(server)
		return nil, net.ErrClosed
	}
	l.server = server
	return server, nil
}

// cut resets both sockets and reports whether this call ended the link. Needs proxy.mu.
func (l *link) cut() bool { return l.end(reset) }

// finish closes both sockets in order: what was handed to them still reaches the receivers, which
// a reset would take from them. Needs proxy.mu.
func (l *link) finish() { l.end(func(conn net.Conn) { _ = conn.Close() }) }

func (l *link) end(closing func(net.Conn)) bool {
	if l.over {
		return false
	}
	l.over = true
	close(l.dead)
	closing(l.client)
	if l.server != nil {
		closing(l.server)
	}
	return true
}
