package testetcd

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// New starts a cluster of its own for tb and closes it when tb ends.
func New(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	c, err := Start(testConfig(opts))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func testConfig(opts []Option) Config {
	cfg := Config{UnsafeNoFsync: true}
	for _, opt := range opts {
		opt(&cfg)
	}
	return cfg
}

// Client returns a client of its own for tb, of all members, closed when tb ends.
func (c *Cluster) Client(tb testing.TB, opts ...func(*clientv3.Config)) *clientv3.Client {
	tb.Helper()
	client, err := c.NewClient(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() }) // a test may have closed it already
	return client
}

var prefixes atomic.Int64

// Prefix returns a key prefix that no other test of this process uses, with a final slash.
func Prefix(tb testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, tb.Name())
	return fmt.Sprintf("/%s/%d/", name, prefixes.Add(1))
}

// Runner runs a package's tests and then closes the cluster that they shared.
type Runner struct {
	m   interface{ Run() int }
	cfg Config

	mu      sync.Mutex // guards the rest
	cluster *Cluster
	err     error
	done    bool
}

// shared is the runner of this test binary.
var shared atomic.Pointer[Runner]

// Main gives a test binary one cluster for all its tests. Call it in TestMain:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testetcd.Main(m)) }
//
// or, without goleak, os.Exit(testetcd.Main(m).Run()). The cluster starts with the first Shared.
func Main(m interface{ Run() int }, opts ...Option) *Runner {
	r := &Runner{m: m, cfg: testConfig(opts)}
	shared.Store(r)
	return r
}

// Run runs the tests, closes the cluster and returns the exit code.
func (r *Runner) Run() int {
	code := r.m.Run()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
	if r.cluster != nil {
		if err := r.cluster.Close(); err != nil && code == 0 {
			fmt.Println(err)
			code = 1
		}
	}
	return code
}

// Shared returns the cluster that all tests of the binary share. It must not be stopped, filled
// or given users; take a Prefix.
func Shared(tb testing.TB) *Cluster {
	tb.Helper()
	r := shared.Load()
	if r == nil {
		tb.Fatal("testetcd: Shared needs testetcd.Main in TestMain")
	}
	c, err := r.start()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func (r *Runner) start() (*Cluster, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return nil, ErrClosed
	}
	if r.cluster == nil && r.err == nil {
		r.cluster, r.err = Start(r.cfg)
	}
	return r.cluster, r.err
}
