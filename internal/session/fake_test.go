package session_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/internal/keys"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

// scripted is an etcd for time bubbles: nothing but a lease whose renewals do what the test says.
type scripted struct {
	clientv3.KV
	clientv3.Lease
	ttl   int64
	began time.Time

	mu       sync.Mutex // guards the fields below
	renew    func(ctx context.Context, n int) error
	attempts []time.Duration // when each renewal was sent, since began
	revoked  bool
}

func (f *scripted) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

func (f *scripted) Txn(context.Context) clientv3.Txn { return scriptedTxn{} }

type scriptedTxn struct{ clientv3.Txn }

func (t scriptedTxn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t scriptedTxn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t scriptedTxn) Else(...clientv3.Op) clientv3.Txn { return t }
func (t scriptedTxn) Commit() (*clientv3.TxnResponse, error) {
	return &clientv3.TxnResponse{Header: &pb.ResponseHeader{Revision: 2}, Succeeded: true}, nil
}

func (f *scripted) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	return &clientv3.LeaseGrantResponse{ResponseHeader: &pb.ResponseHeader{ClusterId: 7}, ID: 99, TTL: f.ttl}, nil
}

func (f *scripted) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revoked = true
	return &clientv3.LeaseRevokeResponse{}, nil
}

// KeepAliveOnce ends with its context at the latest, as that of the client does.
func (f *scripted) KeepAliveOnce(ctx context.Context, _ clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	f.mu.Lock()
	f.attempts = append(f.attempts, time.Since(f.began))
	n, renew := len(f.attempts), f.renew
	f.mu.Unlock()
	if err := renew(ctx, n); err != nil {
		return nil, err
	}
	return &clientv3.LeaseKeepAliveResponse{TTL: f.ttl}, nil
}

func (f *scripted) sent() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Duration{}, f.attempts...)
}

// open opens a session on it: 9 s TTL as granted, renewed every 3 s, with a margin of 1 s.
func (f *scripted) open(t *testing.T, renew func(ctx context.Context, n int) error, opts ...func(*session.Config)) *session.Session {
	t.Helper()
	f.ttl, f.began, f.renew = 9, time.Now(), renew
	client := clientv3.NewCtxClient(t.Context())
	client.KV, client.Lease = f, f
	cfg := session.Config{
		Client: client, Schema: keys.New("/p/"), ReplicaID: "r", Incarnation: "i", Started: time.Now(),
		TTL: 9 * time.Second, RenewEvery: 3 * time.Second, Margin: time.Second, RequestTimeout: 5 * time.Second,
		Logger:  slog.New(slog.DiscardHandler),
		Clock:   func() time.Duration { return time.Since(f.began) }, // the bubble's
		Renewed: func(time.Duration, error) {},
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	s, err := session.Open(t.Context(), cfg)
	require.NoError(t, err)
	return s
}

// hang is a renewal that is never answered.
func hang(ctx context.Context, _ int) error {
	<-ctx.Done()
	return ctx.Err()
}
