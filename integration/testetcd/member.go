package testetcd

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// ErrClosed is returned when a member of a closed cluster is to be started.
var ErrClosed = errors.New("testetcd: the cluster is closed")

// Member is one etcd server. It keeps its data directory and its ports for the cluster's whole
// life, whether it runs or not.
type Member struct {
	cluster *Cluster
	index   int
	name    string
	client  *reservedPort
	peer    *reservedPort

	mu      sync.Mutex // held while starting and stopping; guards the next two
	run     *run       // nil while stopped
	retired bool       // the cluster is closed

	current atomic.Pointer[run] // run, for readers that must not wait for a start or stop
}

// run is one life of a member, from start to stop.
type run struct {
	etcd *embed.Etcd
	// rpc is the server of all client requests. embed offers no way to it but the hook for
	// further services, which is called shortly before it serves.
	rpc atomic.Pointer[grpc.Server]
}

func newMember(c *Cluster, i int) (*Member, error) {
	client, err := reservePort()
	if err != nil {
		return nil, err
	}
	peer, err := reservePort()
	if err != nil {
		client.close()
		return nil, err
	}
	return &Member{cluster: c, index: i, name: "member" + strconv.Itoa(i), client: client, peer: peer}, nil
}

// Endpoint is the member's client endpoint as host:port.
func (m *Member) Endpoint() string { return "127.0.0.1:" + strconv.Itoa(m.client.number) }

// PeerURL is where the other members reach this one.
func (m *Member) PeerURL() string { return "http://127.0.0.1:" + strconv.Itoa(m.peer.number) }

// Running reports whether the member was started and not stopped since.
func (m *Member) Running() bool { return m.current.Load() != nil }

// IsLeader reports whether the member runs and believes that it leads.
func (m *Member) IsLeader() bool {
	_, leads := m.leadsIn()
	return leads
}

// ID is etcd's id of the member, 0 while it is stopped.
func (m *Member) ID() uint64 {
	if r := m.current.Load(); r != nil {
		return uint64(r.etcd.Server.MemberID())
	}
	return 0
}

func (m *Member) leadsIn() (term uint64, leads bool) {
	r := m.current.Load()
	if r == nil {
		return 0, false
	}
	s := r.etcd.Server
	return s.Term(), s.Leader() == s.MemberID()
}

// Stop ends the member as abruptly as a kill would: connections are cut, streams broken, the
// leadership is not handed over. It returns when its listeners are gone; a stopped member stays so.
func (m *Member) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopLocked()
}

func (m *Member) stopLocked() {
	if m.run == nil {
		return
	}
	m.current.Store(nil)
	m.run.stop()
	m.run = nil
}

// stop breaks first what embed's Close would wait for. Close gives open streams seven seconds to
// end by themselves, and hangs on a member that never was ready unless the server has stopped.
func (r *run) stop() {
	if rpc := r.rpc.Load(); rpc != nil {
		rpc.Stop()
	}
	r.etcd.Server.HardStop()
	r.etcd.Close()
}

// Restart stops the member if it runs and starts it with the same data and ports. It waits until
// the member serves, but only if a majority runs with it: without one it cannot.
func (m *Member) Restart() error {
	m.Stop()
	return m.start()
}

// retire is Stop for good, and lets the ports go.
func (m *Member) retire() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopLocked()
	if !m.retired {
		m.retired = true
		m.client.close()
		m.peer.close()
	}
}

func (m *Member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.retired:
		return fmt.Errorf("%s: %w", m.name, ErrClosed)
	case m.run != nil:
		return nil
	}
	r := &run{}
	cfg := m.embedConfig()
	cfg.ServiceRegister = func(s *grpc.Server) { r.rpc.Store(s) }
	var err error
	if r.etcd, err = embed.StartEtcd(cfg); err != nil {
		return fmt.Errorf("testetcd: %s does not start on %s and %s: %w", m.name, m.Endpoint(), m.PeerURL(), err)
	}
	m.run = r
	m.current.Store(r)
	if err := m.waitReady(r); err != nil {
		m.stopLocked()
		return err
	}
	return nil
}

func (m *Member) waitReady(r *run) error {
	timeout := time.NewTimer(m.cluster.cfg.StartTimeout)
	defer timeout.Stop()
	select {
	case <-r.etcd.Server.ReadyNotify():
		return nil
	case err := <-r.etcd.Err():
		return fmt.Errorf("testetcd: %s ended while starting: %w", m.name, err)
	case <-timeout.C:
		return fmt.Errorf("testetcd: %s did not serve within %v; give it more time or less company", m.name, m.cluster.cfg.StartTimeout)
	}
}

func (m *Member) embedConfig() *embed.Config {
	from := m.cluster.cfg
	cfg := embed.NewConfig()
	cfg.Name = m.name
	cfg.Dir = m.cluster.memberDir(m.index)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(from.Logger)
	cfg.UnsafeNoFsync = from.UnsafeNoFsync
	cfg.QuotaBackendBytes = from.QuotaBytes
	if from.FastTicks {
		cfg.TickMs, cfg.ElectionMs = 10, 100
	}
	if from.AuthTokenTTL > 0 {
		cfg.AuthTokenTTL = uint((from.AuthTokenTTL + time.Second - 1) / time.Second)
	}
	cfg.BcryptCost = 4 // the least there is: passwords of tests need no protection, and 10 takes 50 ms

	// What is advertised must be the real port: a client's Sync replaces its endpoints by it.
	client := []url.URL{{Scheme: "http", Host: m.Endpoint()}}
	peer := []url.URL{{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(m.peer.number)}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = client, client
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peer, peer
	cfg.InitialCluster = m.cluster.initialCluster()
	return cfg
}
