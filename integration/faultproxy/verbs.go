package faultproxy

import "time"

// Hold keeps what arrives instead of delivering it, until Resume. Without directions it holds both.
func (p *Proxy) Hold(dirs ...Direction) {
	p.change(dirs, func(d Direction) { p.fault[d].hold = true }, func(h *half) { h.held = true })
}

// HoldExisting is Hold for the connections that are open now. What a client sends on an old
// connection can so be kept back while it goes on over a new one; it is delivered by Resume even
// if the client has closed the old one meanwhile.
func (p *Proxy) HoldExisting(dirs ...Direction) {
	p.change(dirs, nil, func(h *half) { h.held = true })
}

// Resume ends Hold and HoldExisting and delivers what was held.
func (p *Proxy) Resume(dirs ...Direction) {
	p.change(dirs, func(d Direction) { p.fault[d].hold = false }, func(h *half) { h.held, h.allowance = false, 0 })
}

// Deliver lets the next n held bytes of every open connection through; what follows stays held.
// To deliver a request without the cancellation that follows it, remember Held when the request
// has arrived and deliver just that many.
func (p *Proxy) Deliver(dir Direction, n int64) {
	p.change([]Direction{dir}, nil, func(h *half) {
		if h.held {
			h.allowance += n
		}
	})
}

// Drop makes the proxy a black hole: connections are accepted, and what arrives or was held is lost.
func (p *Proxy) Drop(dirs ...Direction) {
	p.change(dirs, func(d Direction) { p.fault[d].drop = true }, func(h *half) { h.lose() })
}

// StopDropping ends Drop. Connections that lost bytes are reset.
func (p *Proxy) StopDropping(dirs ...Direction) {
	p.change(dirs, func(d Direction) { p.fault[d].drop = false }, func(h *half) {
		if h.lossy {
			h.link.cut()
		}
	})
}

// Delay delivers every byte d later than it would have been; 0 ends the delay. Bytes that are
// already on their way keep the delay they arrived with.
func (p *Proxy) Delay(dir Direction, d time.Duration) {
	p.change([]Direction{dir}, func(dir Direction) { p.fault[dir].delay = d }, nil)
}

// Cut resets all open connections and reports how many there were. New ones pass.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cutLocked()
}

func (p *Proxy) cutLocked() int {
	n := 0
	for l := range p.links {
		if l.cut() {
			n++
		}
	}
	return n
}

// Refuse resets every new connection right after it was accepted; open ones live on.
func (p *Proxy) Refuse() { p.setRefusing(true) }

// Accept ends Refuse.
func (p *Proxy) Accept() { p.setRefusing(false) }

func (p *Proxy) setRefusing(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = on
}

// Down is what a dead server looks like: open connections are reset and new ones too, until Heal
// or Accept.
func (p *Proxy) Down() {
	p.Refuse() // first, so that none slips in between
	p.Cut()
}

// Heal ends every fault: what was held is delivered, connections that lost bytes are reset.
func (p *Proxy) Heal() {
	p.StopDropping()
	p.Delay(ToServer, 0)
	p.Delay(ToClient, 0)
	p.Resume()
	p.Accept()
}

// change applies a verb to connections to come (general) and to open ones (single), in one step.
func (p *Proxy) change(dirs []Direction, general func(Direction), single func(*half)) {
	if len(dirs) == 0 {
		dirs = both
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range dirs {
		if general != nil {
			general(d)
		}
		for l := range p.links {
			if single != nil {
				single(l.halves[d])
			}
			l.halves[d].nudge()
		}
	}
	p.announce()
}
