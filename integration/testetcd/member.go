package testetcd

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
)

// Member is one etcd server. It keeps its data directory and its ports for the cluster's whole
// life, whether it runs or not.
type Member struct {
	cluster *Cluster
	index   int
	name    string
	client  *reservedPort
	peer    *reservedPort
	// front is what the other members connect to; nil in a cluster of one. etcd leaves connections
	// between members open behind it, for seconds, and gives no way to them. Here they are cut.
	front *faultproxy.Proxy

	mu      sync.Mutex          // held while starting and stopping
	run     atomic.Pointer[run] // nil while stopped; written under mu, read without
	retired bool                // guarded by mu; the cluster is closed
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
	m := &Member{cluster: c, index: i, name: "member" + strconv.Itoa(i), client: client, peer: peer}
	if c.cfg.Members > 1 {
		if m.front, err = faultproxy.New(m.peerAddr()); err != nil {
			client.close()
			peer.close()
			return nil, fmt.Errorf("testetcd: %w", err)
		}
	}
	return m, nil
}

// Endpoint is the member's client endpoint as host:port.
func (m *Member) Endpoint() string { return "127.0.0.1:" + strconv.Itoa(m.client.number) }

// PeerURL is where the other members reach this one.
func (m *Member) PeerURL() string {
	if m.front != nil {
		return "http://" + m.front.Endpoint()
	}
	return "http://" + m.peerAddr()
}

// peerAddr is where the member itself listens for the others.
func (m *Member) peerAddr() string { return "127.0.0.1:" + strconv.Itoa(m.peer.number) }

// PeerProxy carries what the other members send to this one and what they fetch from it: two of
// the four streams between any two members. It is nil in a cluster of one. Isolate cuts all four.
func (m *Member) PeerProxy() *faultproxy.Proxy { return m.front }

// Running reports whether the member was started and not stopped since.
func (m *Member) Running() bool { return m.run.Load() != nil }

// IsLeader reports whether the member runs and believes that it leads.
func (m *Member) IsLeader() bool {
	_, leads := m.leadsIn()
	return leads
}

// ID is etcd's id of the member, 0 while it is stopped.
func (m *Member) ID() uint64 {
	if r := m.run.Load(); r != nil {
		return uint64(r.etcd.Server.MemberID())
	}
	return 0
}

func (m *Member) leadsIn() (term uint64, leads bool) {
	r := m.run.Load()
	if r == nil {
		return 0, false
	}
	s := r.etcd.Server
	return s.Term(), s.Leader() == s.MemberID()
}

func (m *Member) embedConfig() *embed.Config {
	from := m.cluster.cfg
	cfg := embed.NewConfig()
	cfg.Name = m.name
	cfg.Dir = memberDir(m.cluster.dir, m.index)
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

	cfg.EnableGRPCGateway = false // JSON over HTTP, for which each member would keep a connection to itself

	// What is advertised must be the real port: a client's Sync replaces its endpoints by it.
	client := []url.URL{{Scheme: "http", Host: m.Endpoint()}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = client, client
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: m.peerAddr()}}
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: strings.TrimPrefix(m.PeerURL(), "http://")}}
	cfg.InitialCluster = m.cluster.initialCluster()
	return cfg
}
