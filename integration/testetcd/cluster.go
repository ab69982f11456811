package testetcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// startAttempts bounds the tries with fresh ports when another process took one of ours.
const startAttempts = 5

// maxMembers is how many members a cluster can have.
const maxMembers = 3

// Cluster is a running etcd of one or three members. Its methods may be called concurrently.
type Cluster struct {
	cfg     Config
	dir     string
	members []*Member

	closeOnce sync.Once
	closeErr  error
}

// Start starts a cluster and returns when every member serves clients. The caller closes it.
func Start(cfg Config) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkDir(cfg); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		c, err := startOnce(cfg)
		if err == nil {
			return c, nil
		}
		// A second attempt has other ports, which members that were initialised by the first would
		// not accept; in a temporary directory there are none.
		if attempt == startAttempts || cfg.Dir != "" || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
}

// checkDir refuses data that cannot start again: members find each other by the ports that were
// stored with it, and those are gone. A single member needs none.
func checkDir(cfg Config) error {
	if cfg.Dir == "" {
		return nil
	}
	first := 0
	if cfg.Members == 1 {
		first = 1
	}
	for i := first; i < maxMembers; i++ {
		if dir := memberDir(cfg.Dir, i); exists(dir) {
			return fmt.Errorf("testetcd: %s holds data of another cluster of %d: use an empty directory, or Restart the running one", dir, maxMembers)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func startOnce(cfg Config) (_ *Cluster, err error) {
	c := &Cluster{cfg: cfg, dir: cfg.Dir}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "testetcd-"); err != nil {
			return nil, fmt.Errorf("testetcd: no directory for the data: %w", err)
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	for i := range cfg.Members {
		m, err := newMember(c, i)
		if err != nil {
			return nil, err
		}
		c.members = append(c.members, m)
	}
	return c, c.startAll()
}

// startAll starts what does not run, all at once, and then waits: none serves before a majority runs.
func (c *Cluster) startAll() error {
	errs := make([]error, len(c.members))
	runs := make([]*run, len(c.members))
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() { runs[i], errs[i] = m.launch() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, m := range c.members {
		wg.Go(func() { errs[i] = m.waitReady(runs[i]) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// running counts the members that were started and not stopped since.
func (c *Cluster) running() (n int) {
	for _, m := range c.members {
		if m.Running() {
			n++
		}
	}
	return n
}

// initialCluster is etcd's list of all members with their peer URLs.
func (c *Cluster) initialCluster() string {
	entries := make([]string, len(c.members))
	for i, m := range c.members {
		entries[i] = m.name + "=" + m.PeerURL()
	}
	return strings.Join(entries, ",")
}

// Endpoints are the client endpoints of all members, running or not, as host:port.
func (c *Cluster) Endpoints() []string {
	endpoints := make([]string, len(c.members))
	for i, m := range c.members {
		endpoints[i] = m.Endpoint()
	}
	return endpoints
}

// Members are all members, running or not.
func (c *Cluster) Members() []*Member { return append([]*Member(nil), c.members...) }

// Member is the i-th member, counted from 0. It panics when there is no such member.
func (c *Cluster) Member(i int) *Member { return c.members[i] }

// Leader is the running member that leads at the moment, or nil when none does. Right after a
// cut the old and the new leader may both believe that they lead; the one with the higher term wins.
func (c *Cluster) Leader() *Member {
	var leader *Member
	var highest uint64
	for _, m := range c.members {
		if term, leads := m.leadsIn(); leads && (leader == nil || term > highest) {
			leader, highest = m, term
		}
	}
	return leader
}

// WaitLeader waits until a member leads and returns it.
func (c *Cluster) WaitLeader(ctx context.Context) (*Member, error) {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		if leader := c.Leader(); leader != nil {
			return leader, nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("testetcd: %d of %d members run and none leads: %w", c.running(), len(c.members), context.Cause(ctx))
		}
	}
}

// Restart starts every member that does not run and waits until all serve.
func (c *Cluster) Restart() error { return c.startAll() }

// NewClient returns a client of all members that logs nothing. The caller closes it.
func (c *Cluster) NewClient(opts ...func(*clientv3.Config)) (*clientv3.Client, error) {
	cfg := clientv3.Config{Endpoints: c.Endpoints(), Logger: zap.NewNop()}
	for _, opt := range opts {
		opt(&cfg)
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("testetcd: no client of %v: %w", cfg.Endpoints, err)
	}
	return client, nil
}

// Close stops all members and removes the temporary directory. It does not wait for clients that
// still have streams open: their connections are cut. Repeated calls return what the first did.
func (c *Cluster) Close() error {
	c.closeOnce.Do(func() {
		var wg sync.WaitGroup
		for _, m := range c.members {
			wg.Go(m.retire)
		}
		wg.Wait()
		if c.cfg.Dir == "" {
			if err := os.RemoveAll(c.dir); err != nil {
				c.closeErr = fmt.Errorf("testetcd: temporary data is left in %s: %w", c.dir, err)
			}
		}
	})
	return c.closeErr
}

func memberDir(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("member%d", i)) }
