package integration_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// late makes one request of a client arrive long after its caller has given it up and everything
// that follows has got through on another connection.
type late struct {
	t       testing.TB
	etcd    *testetcd.Cluster
	proxy   *faultproxy.Proxy
	client  *clientv3.Client
	plain   *clientv3.Client
	key     string // long, so that a request about it can be told from small ones
	request int64  // bytes of the held request, without the cancellation that follows it
	passed  int64  // bytes that had passed before
}

// newLateBot is on an etcd of its own: nobody else makes proposals there.
func newLateBot(t testing.TB) (*bot, *late) {
	b := newBotOn(t, testetcd.New(t, testetcd.FastTicks))
	l := &late{t: t, etcd: b.etcd, plain: b.plain, proxy: faultproxy.Before(t, b.etcd.Member(0).Endpoint())}
	l.client = clientThrough(t, b.etcd, l.proxy)
	l.key = strings.Repeat("long", 100)
	return b, l
}

// intercept runs call, which makes a transaction about key, and cancels its context when that has
// left the client and is held on its way. What the client sends from then on takes another way.
func (l *late) intercept(call func(ctx context.Context) error) error {
	l.t.Helper()
	l.proxy.HoldExisting(faultproxy.ToServer)
	l.passed = l.proxy.Forwarded(faultproxy.ToServer)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	// The transactions name the key more often than the reads that come before them.
	require.NoError(l.t, l.proxy.WaitHeld(soon(l.t), faultproxy.ToServer, int64(5*len(l.key))))
	// All of it, if it came in more than one piece.
	for before := int64(0); before != l.request || before == 0; {
		before = l.request
		time.Sleep(50 * time.Millisecond)
		l.request = l.proxy.Held(faultproxy.ToServer)
	}
	l.client.SetEndpoints(l.etcd.Member(0).Endpoint())
	cancel()
	return got(l.t, done)
}

// deliver lets the request through and returns when etcd has carried it out, with whatever result.
func (l *late) deliver() {
	l.t.Helper()
	before := l.applied()
	l.proxy.Deliver(faultproxy.ToServer, l.request)
	require.NoError(l.t, l.proxy.WaitForwarded(soon(l.t), faultproxy.ToServer, l.passed+l.request))
	require.Eventually(l.t, func() bool { return l.applied() > before }, patience, 5*time.Millisecond,
		"the late request never reached etcd")
}

// applied counts what etcd has carried out, compares that failed included.
func (l *late) applied() uint64 {
	l.t.Helper()
	status, err := l.plain.Status(soon(l.t), l.etcd.Member(0).Endpoint())
	require.NoError(l.t, err)
	return status.RaftAppliedIndex
}

// holds asserts that the turn's ticket is in etcd, which is more than what its owner believes.
func (b *bot) holds(turn *etcdcoord.Turn) {
	b.t.Helper()
	answer, err := b.plain.Txn(soon(b.t)).If(turn.Guard()).Commit()
	require.NoError(b.t, err)
	require.True(b.t, answer.Succeeded, "the ticket of the turn with fence %d is not in etcd", turn.Fence())
	require.NoError(b.t, turn.AssertHeld())
}

// unavailable asserts that err is a *CoordinationUnavailableError with that reason, and gives it.
func unavailable(t testing.TB, err error, reason etcdcoord.UnavailableReason) *etcdcoord.CoordinationUnavailableError {
	t.Helper()
	var e *etcdcoord.CoordinationUnavailableError
	require.ErrorAs(t, err, &e)
	require.Equal(t, reason, e.Reason, "%v", e)
	require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
	return e
}

// reserveInTime repeats Reserve as a caller has to who gets ErrUnavailable, here because a
// connection has just been cut.
func reserveInTime(t testing.TB, c *etcdcoord.Coordinator, key string) *etcdcoord.Ticket {
	t.Helper()
	ctx := soon(t)
	for {
		ticket, err := c.Reserve(ctx, key)
		if err == nil {
			return ticket
		}
		require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
		require.NoError(t, ctx.Err())
	}
}
