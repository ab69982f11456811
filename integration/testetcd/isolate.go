package testetcd

// Isolate cuts the member off from the others, both ways, until Rejoin. Clients still reach it.
// A restart of any member mends the links of that member only.
func (m *Member) Isolate() { m.setLinks(true) }

// Rejoin ends Isolate.
func (m *Member) Rejoin() { m.setLinks(false) }

// setLinks works on both ends of each link: an end forgets its cut when it restarts.
func (m *Member) setLinks(cut bool) {
	self := m.run.Load()
	if self == nil {
		return
	}
	for _, member := range m.cluster.members {
		other := member.run.Load()
		if other == nil || other == self {
			continue
		}
		a, b := self.etcd.Server, other.etcd.Server
		if cut {
			a.CutPeer(b.MemberID())
			b.CutPeer(a.MemberID())
		} else {
			a.MendPeer(b.MemberID())
			b.MendPeer(a.MemberID())
		}
	}
}
