package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// patience is for what must happen soon. It only bounds how long a broken test takes.
const patience = time.Minute

// noise is what a busy machine may add to a time that is promised.
const noise = 2 * time.Second

// within asserts that no more than limit and noise have passed since began.
func within(t testing.TB, began time.Time, limit time.Duration, what string) {
	t.Helper()
	took := time.Since(began)
	require.Less(t, took, limit+noise, "%s took %v", what, took)
	t.Logf("%s: %v", what, took.Round(time.Millisecond))
}

// soon is a context that ends with patience, or with the test.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// bot is several replicas under one prefix, and a plain client beside them that looks at etcd.
type bot struct {
	t      testing.TB
	etcd   *testetcd.Cluster
	prefix string
	plain  *clientv3.Client
}

func newBot(t testing.TB) *bot { return newBotOn(t, testetcd.Shared(t)) }

func newBotOn(t testing.TB, etcd *testetcd.Cluster) *bot {
	return &bot{t: t, etcd: etcd, prefix: testetcd.Prefix(t), plain: etcd.Client(t)}
}

// option changes a replica's config.
type option func(*etcdcoord.Config)

func ttl(d time.Duration) option { return func(cfg *etcdcoord.Config) { cfg.SessionTTL = d } }

// renewEvery leaves a short session more tries on a busy machine.
func renewEvery(d time.Duration) option { return func(cfg *etcdcoord.Config) { cfg.RenewEvery = d } }

// clientThrough is a client that reaches etcd through proxy only.
func clientThrough(t testing.TB, etcd *testetcd.Cluster, proxy *faultproxy.Proxy) *clientv3.Client {
	t.Helper()
	return etcd.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{proxy.Endpoint()} })
}

func requestTimeout(d time.Duration) option {
	return func(cfg *etcdcoord.Config) { cfg.RequestTimeout = d }
}

// replica is started, with its own client, and stopped when the test ends.
func (b *bot) replica(id string, opts ...option) *etcdcoord.Coordinator {
	b.t.Helper()
	return b.replicaOn(b.etcd.Client(b.t), id, opts...)
}

func (b *bot) replicaOn(client *clientv3.Client, id string, opts ...option) *etcdcoord.Coordinator {
	b.t.Helper()
	c := b.unstarted(client, id, opts...)
	require.NoError(b.t, c.Start(soon(b.t)))
	b.t.Cleanup(func() { stop(b.t, c) })
	return c
}

func (b *bot) unstarted(client *clientv3.Client, id string, opts ...option) *etcdcoord.Coordinator {
	b.t.Helper()
	cfg := etcdcoord.Config{ReplicaID: id, Prefix: b.prefix}
	for _, opt := range opts {
		opt(&cfg)
	}
	c, err := etcdcoord.New(client, cfg)
	require.NoError(b.t, err)
	return c
}

// stop stops at the end of a test, when etcd may be gone already.
func stop(t testing.TB, c *etcdcoord.Coordinator) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Logf("stop at the end of the test: %v", err)
	}
}

func reserve(t testing.TB, c *etcdcoord.Coordinator, key string) *etcdcoord.Ticket {
	t.Helper()
	ticket, err := c.Reserve(soon(t), key)
	require.NoError(t, err)
	return ticket
}

func acquire(t testing.TB, c *etcdcoord.Coordinator, ticket *etcdcoord.Ticket) *etcdcoord.Turn {
	t.Helper()
	turn, err := c.AcquireTurn(soon(t), ticket)
	require.NoError(t, err)
	return turn
}

func take(t testing.TB, c *etcdcoord.Coordinator, key string) *etcdcoord.Turn {
	t.Helper()
	return acquire(t, c, reserve(t, c, key))
}

func release(t testing.TB, turn *etcdcoord.Turn) {
	t.Helper()
	require.NoError(t, turn.Release(soon(t)))
}

// outcome is what an AcquireTurn in the background came to.
type outcome struct {
	turn *etcdcoord.Turn
	err  error
}

// acquiring acquires in the background.
func acquiring(ctx context.Context, c *etcdcoord.Coordinator, ticket *etcdcoord.Ticket) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		turn, err := c.AcquireTurn(ctx, ticket)
		done <- outcome{turn, err}
	}()
	return done
}

// got waits for what must come soon.
func got[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// cause waits for the end of ctx and gives its cause.
func cause(t testing.TB, ctx context.Context) error {
	t.Helper()
	got(t, ctx.Done())
	return context.Cause(ctx)
}

// lost asserts that err is a *LeaseLostError with that reason, and gives it.
func lost(t testing.TB, err error, reason etcdcoord.LostReason) *etcdcoord.LeaseLostError {
	t.Helper()
	var e *etcdcoord.LeaseLostError
	require.ErrorAs(t, err, &e)
	require.Equal(t, reason, e.Reason, "%v", e)
	require.ErrorIs(t, err, etcdcoord.ErrLeaseLost)
	return e
}

// keys under the bot's prefix.
func (b *bot) keys(under string) []string {
	b.t.Helper()
	answer, err := b.plain.Get(soon(b.t), b.prefix+under, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(b.t, err)
	var names []string
	for _, kv := range answer.Kvs {
		names = append(names, string(kv.Key)[len(b.prefix):])
	}
	return names
}

// noTickets asserts that soon no ticket is left, of any key.
func (b *bot) noTickets() {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return len(b.tickets()) == 0 }, patience, 5*time.Millisecond, "tickets stay in etcd")
}

func (b *bot) tickets() (names []string) {
	for _, name := range b.keys("v1/turns/") {
		if !isHolder(name) {
			names = append(names, name)
		}
	}
	return names
}

func isHolder(name string) bool {
	const holder = "/holder"
	return len(name) > len(holder) && name[len(name)-len(holder):] == holder
}

// campaignEnd is what a Lead in the background came to.
type campaignEnd struct {
	leadership *etcdcoord.Leadership
	err        error
}

// leading leads in the background.
func leading(ctx context.Context, c *etcdcoord.Coordinator, name string) <-chan campaignEnd {
	done := make(chan campaignEnd, 1)
	go func() {
		leadership, err := c.Lead(ctx, name)
		done <- campaignEnd{leadership, err}
	}()
	return done
}

// elected waits for the win of a Lead in the background.
func elected(t testing.TB, from <-chan campaignEnd) *etcdcoord.Leadership {
	t.Helper()
	end := got(t, from)
	require.NoError(t, end.err)
	return end.leadership
}
