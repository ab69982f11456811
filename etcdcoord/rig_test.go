package etcdcoord_test

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func TestMain(m *testing.M) {
	// Most tests wait for answers, not for a processor.
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set("16")
	}
	goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks))
}

// patience bounds what should happen soon on a machine that may be busy.
const patience = 20 * time.Second

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// bot is a prefix on the shared etcd, and a look at it past all replicas.
type bot struct {
	t      *testing.T
	prefix string
	plain  *clientv3.Client
}

func newBot(t *testing.T) *bot {
	return &bot{t, testetcd.Prefix(t), testetcd.Shared(t).Client(t)}
}

// replica is not started. Its session is long and renewed often: what is done to it by hand is
// noticed at once, and a machine that is busy does not end it.
func (b *bot) replica(id string, opts ...func(*etcdcoord.Config)) (*etcdcoord.Coordinator, *wire) {
	b.t.Helper()
	w := &wire{}
	client := testetcd.Shared(b.t).Client(b.t, func(cfg *clientv3.Config) {
		cfg.DialOptions = append(cfg.DialOptions,
			grpc.WithChainUnaryInterceptor(w.unary), grpc.WithChainStreamInterceptor(w.stream))
	})
	cfg := etcdcoord.Config{ReplicaID: id, Prefix: b.prefix, SessionTTL: 30 * time.Second, RenewEvery: 50 * time.Millisecond}
	for _, opt := range opts {
		opt(&cfg)
	}
	c, err := etcdcoord.New(client, cfg)
	require.NoError(b.t, err)
	b.t.Cleanup(func() {
		w.set(nil)
		require.NoError(b.t, c.Stop(context.Background()))
	})
	return c, w
}

func (b *bot) started(id string, opts ...func(*etcdcoord.Config)) (*etcdcoord.Coordinator, *wire) {
	b.t.Helper()
	c, w := b.replica(id, opts...)
	require.NoError(b.t, c.Start(within(b.t, patience)))
	return c, w
}

// kill ends the session as etcd does when a replica is dead.
func (b *bot) kill(c *etcdcoord.Coordinator) {
	b.t.Helper()
	_, err := b.plain.Revoke(within(b.t, patience), clientv3.LeaseID(c.Stats().LeaseID))
	require.NoError(b.t, err)
}

func reserve(t *testing.T, c *etcdcoord.Coordinator, key string) *etcdcoord.Ticket {
	t.Helper()
	ticket, err := c.Reserve(within(t, patience), key)
	require.NoError(t, err)
	return ticket
}

func take(t *testing.T, c *etcdcoord.Coordinator, key string) *etcdcoord.Turn {
	t.Helper()
	turn, err := c.AcquireTurn(within(t, patience), reserve(t, c, key))
	require.NoError(t, err)
	return turn
}

func got[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-within(t, patience).Done():
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patience, 2*time.Millisecond, what)
}

// wire is between a replica and etcd.
type wire struct {
	mu   sync.Mutex
	rule rule
}

// rule says what happens to a request. An error is what the caller hears, whether or not it is sent.
type rule func(ctx context.Context, method string, request any) (send bool, err error)

func (w *wire) set(r rule) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rule = r
}

func (w *wire) decide(ctx context.Context, method string, request any) (send bool, err error) {
	w.mu.Lock()
	r := w.rule
	w.mu.Unlock()
	if r == nil {
		return true, nil
	}
	return r(ctx, method, request)
}

func (w *wire) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	send, fault := w.decide(ctx, method, req)
	if send {
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
	}
	return fault
}

func (w *wire) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if _, err := w.decide(ctx, method, nil); err != nil {
		return nil, err
	}
	return streamer(ctx, desc, cc, method, opts...)
}
