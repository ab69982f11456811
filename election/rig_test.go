package election_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/election"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/clock"
	"github.com/andresayac/botmesh-etcd/internal/janitor"
	"github.com/andresayac/botmesh-etcd/internal/keys"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks)) }

// patience bounds what should happen soon on a machine that may be busy.
const patience = 20 * time.Second

// replica is an Elector on a session of its own, driven as the facade does it.
type replica struct {
	*election.Elector
	id      string
	client  *clientv3.Client
	schema  keys.Schema
	session *session.Session
	janitor *janitor.Janitor

	mu     sync.Mutex
	told   []string // "gained name fence", "lost name fence reason"
	closed sync.Once
}

type rigOption func(*session.Config, *election.Config)

func ttl(d time.Duration) rigOption {
	return func(s *session.Config, _ *election.Config) { s.TTL, s.RenewEvery = d, d/3 }
}

func requestTimeout(d time.Duration) rigOption {
	return func(s *session.Config, e *election.Config) { s.RequestTimeout, e.RequestTimeout = d, d }
}

// join opens a session and an elector under prefix; both end with the test.
func join(t *testing.T, client *clientv3.Client, prefix, id string, opts ...rigOption) *replica {
	t.Helper()
	r := &replica{id: id, client: client, schema: keys.New(prefix), janitor: janitor.New(4)}
	scfg := session.Config{
		Client: client, Schema: r.schema, ReplicaID: id, Incarnation: id + "-1", Started: time.Now(),
		TTL: 5 * time.Second, RenewEvery: time.Second, Margin: 500 * time.Millisecond, RequestTimeout: 5 * time.Second,
		Logger: slog.New(slog.DiscardHandler), Clock: clock.System, Renewed: func(time.Duration, error) {},
	}
	ecfg := election.Config{
		Client: client, Schema: r.schema, Janitor: r.janitor, ReplicaID: id,
		RequestTimeout: 5 * time.Second, Logger: scfg.Logger,
		Gained: func(name string, fence fencing.Token) { r.tell("gained %s %d", name, fence) },
		Lost: func(name string, fence fencing.Token, err error) {
			var lost *fencing.LeaseLostError
			if !errors.As(err, &lost) {
				lost = &fencing.LeaseLostError{Reason: "not a LeaseLostError"}
			}
			r.tell("lost %s %d %s", name, fence, lost.Reason)
		},
	}
	for _, opt := range opts {
		opt(&scfg, &ecfg)
	}
	var err error
	r.session, err = session.Open(within(t, patience), scfg)
	require.NoError(t, err)
	ecfg.Session = r.session
	r.Elector = election.New(ecfg)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		<-r.session.Done()
		r.End(fencing.Expired, r.session.Err())
	}()
	t.Cleanup(func() {
		r.stop()
		<-watched
	})
	return r
}

// stop ends the replica in the order of the facade: what is held, then the lease.
func (r *replica) stop() {
	r.closed.Do(func() {
		r.End(fencing.Stopped, errors.New("stop was called"))
		r.Close()
		r.janitor.Close()
		r.session.End(errors.New("stopped"))
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = r.session.Revoke(ctx)
		r.session.Wait()
	})
}

func (r *replica) tell(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, fmt.Sprintf(format, args...))
}

func (r *replica) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.told...)
}

// ownKey is the replica's candidate key for name.
func (r *replica) ownKey(name string) string {
	return r.schema.Candidate(name, int64(r.session.Lease()))
}

// candidates are the candidates of name, oldest first.
func candidates(t *testing.T, client *clientv3.Client, schema keys.Schema, name string) []string {
	t.Helper()
	answer, err := client.Get(within(t, patience), schema.Candidates(name), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	values := []string{}
	for _, kv := range answer.Kvs {
		values = append(values, string(kv.Value))
	}
	return values
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patience, 5*time.Millisecond, what)
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// leading is the outcome of a Lead that was started in the background.
type leading struct {
	done chan struct{}
	l    *election.Leadership
	err  error
}

func (r *replica) goLead(ctx context.Context, name string) *leading {
	p := &leading{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.l, p.err = r.Lead(ctx, name)
	}()
	return p
}

func (p *leading) wins(t *testing.T) *election.Leadership {
	t.Helper()
	p.ends(t)
	require.NoError(t, p.err)
	return p.l
}

func (p *leading) fails(t *testing.T) error {
	t.Helper()
	p.ends(t)
	require.Error(t, p.err)
	require.Nil(t, p.l)
	return p.err
}

func (p *leading) ends(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		require.FailNow(t, "Lead did not return")
	}
}

func (p *leading) waits(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
		require.FailNow(t, "Lead returned", "%v %v", p.l, p.err)
	default:
	}
}

// two replicas on the shared etcd, under a prefix of their own.
func two(t *testing.T, opts ...rigOption) (a, b *replica) {
	t.Helper()
	prefix := testetcd.Prefix(t)
	a = join(t, testetcd.Shared(t).Client(t), prefix, "a", opts...)
	b = join(t, testetcd.Shared(t).Client(t), prefix, "b", opts...)
	return a, b
}

// campaigns waits until the replica's candidate for name is in etcd, and returns its create revision.
func (r *replica) campaigns(t *testing.T, name string) (rev int64) {
	t.Helper()
	eventually(t, "a candidate of "+r.id, func() bool {
		answer, err := r.client.Get(t.Context(), r.ownKey(name))
		if err != nil || len(answer.Kvs) == 0 {
			return false
		}
		rev = answer.Kvs[0].CreateRevision
		return true
	})
	return rev
}
