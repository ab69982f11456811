package backend_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks)) }

// What etcd's client really returns, provoked one by one.
func TestErrorsOfARealEtcd(t *testing.T) {
	t.Parallel()
	client, key := testetcd.Shared(t).Client(t), testetcd.Prefix(t)+"k"
	put, err := client.Put(t.Context(), key, "v")
	require.NoError(t, err)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, end := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer end()
	soon, endSoon := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer endSoon()
	nobody := testetcd.Shared(t).Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{"127.0.0.1:1"} })
	closed := testetcd.Shared(t).Client(t)
	_, err = closed.Get(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, closed.Close())

	for name, c := range map[string]struct {
		call func() error
		want backend.Kind
	}{
		"nothing":                     {func() error { _, err := client.Get(t.Context(), key); return err }, backend.None},
		"put on a lease that is gone": {func() error { _, err := client.Put(t.Context(), key, "v", clientv3.WithLease(7)); return err }, backend.LeaseGone},
		"txn on a lease that is gone": {func() error {
			_, err := client.Txn(t.Context()).Then(clientv3.OpPut(key, "v", clientv3.WithLease(7))).Commit()
			return err
		}, backend.LeaseGone},
		"renewal of a lease gone":   {func() error { _, err := client.KeepAliveOnce(t.Context(), 7); return err }, backend.LeaseGone},
		"revoke of a lease gone":    {func() error { _, err := client.Revoke(t.Context(), 7); return err }, backend.LeaseGone},
		"cancelled":                 {func() error { _, err := client.Get(cancelled, key); return err }, backend.Canceled},
		"cancelled txn":             {func() error { _, err := client.Txn(cancelled).Then(clientv3.OpGet(key)).Commit(); return err }, backend.Canceled},
		"past its deadline":         {func() error { _, err := client.Get(late, key); return err }, backend.Timeout},
		"no answer by the deadline": {func() error { _, err := nobody.Get(soon, key); return err }, backend.Timeout},
		"a closed client":           {func() error { _, err := closed.Get(t.Context(), key); return err }, backend.Failed},
		"a TTL that is too large":   {func() error { _, err := client.Grant(t.Context(), math.MaxInt64); return err }, backend.Refused},
		"the same key twice": {func() error {
			_, err := client.Txn(t.Context()).Then(clientv3.OpPut(key, ""), clientv3.OpPut(key, "")).Commit()
			return err
		}, backend.Refused},
		"too many operations": {func() error {
			_, err := client.Txn(t.Context()).Then(manyGets(key, 200)...).Commit()
			return err
		}, backend.Refused},
		"a request that is too large":  {func() error { _, err := client.Put(t.Context(), key, strings.Repeat("x", 1600<<10)); return err }, backend.Refused},
		"larger than the client sends": {func() error { _, err := client.Put(t.Context(), key, strings.Repeat("x", 3<<20)); return err }, backend.Failed},
		"a revision to come": {func() error {
			_, err := client.Get(t.Context(), key, clientv3.WithRev(put.Header.Revision+1_000_000))
			return err
		}, backend.Refused},
	} {
		err := c.call()
		require.Equal(t, c.want, backend.Classify(err), "%s: %v", name, err)
		if err != nil {
			require.Equal(t, c.want, backend.Classify(fmt.Errorf("a: %w", errors.Join(errors.New("b"), err))), "%s, wrapped", name)
		}
	}
}

func manyGets(key string, n int) (ops []clientv3.Op) {
	for range n {
		ops = append(ops, clientv3.OpGet(key))
	}
	return ops
}

func TestErrorsOfAnEtcdOfItsOwn(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks, func(cfg *testetcd.Config) { cfg.QuotaBytes = 4 << 20 })
	root := cluster.Client(t)
	// Compacted.
	for range 3 {
		_, err := root.Put(t.Context(), "/bot/k", "v")
		require.NoError(t, err)
	}
	_, err := root.Compact(t.Context(), 3)
	require.NoError(t, err)
	_, err = root.Get(t.Context(), "/bot/k", clientv3.WithRev(2))
	require.Equal(t, backend.Compacted, backend.Classify(err), "%v", err)
	compacted := <-root.Watch(t.Context(), "/bot/k", clientv3.WithRev(2))
	require.Equal(t, backend.Compacted, backend.Classify(compacted.Err()), "%v", compacted.Err())

	// Denied.
	for _, step := range []func() error{
		func() error { _, err := root.UserAdd(t.Context(), "root", "secret"); return err },
		func() error { _, err := root.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := root.UserAdd(t.Context(), "bot", "secret"); return err },
		func() error { _, err := root.AuthEnable(t.Context()); return err },
	} {
		require.NoError(t, step())
	}
	_, err = root.Get(t.Context(), "/bot/k")
	require.Equal(t, backend.Denied, backend.Classify(err), "no user: %v", err)
	as := func(user, password string) *clientv3.Client {
		return cluster.Client(t, func(cfg *clientv3.Config) { cfg.Username, cfg.Password = user, password })
	}
	_, err = as("bot", "secret").Get(t.Context(), "/bot/k")
	require.Equal(t, backend.Denied, backend.Classify(err), "no permission: %v", err)
	_, err = as("bot", "secret").Txn(t.Context()).Then(clientv3.OpPut("/bot/k", "")).Commit()
	require.Equal(t, backend.Denied, backend.Classify(err), "no permission: %v", err)
	_, err = cluster.NewClient(func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "bot", "wrong" })
	require.Error(t, err, "clientv3.New asks for a token at once")
	require.Equal(t, backend.Denied, backend.Classify(err), "wrong password: %v", err)
	_, err = cluster.NewClient(func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "ghost", "secret" })
	require.Equal(t, backend.Denied, backend.Classify(err), "no such user: %v", err)
	admin := as("root", "secret")

	// No space.
	for err = error(nil); err == nil; {
		_, err = admin.Put(t.Context(), "/ballast", strings.Repeat("x", 1<<20))
	}
	require.Equal(t, backend.NoSpace, backend.Classify(err), "%v", err)
	_, err = admin.Grant(t.Context(), 10)
	require.Equal(t, backend.NoSpace, backend.Classify(err), "%v", err)

	// Down.
	cluster.Member(0).Stop()
	soon, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	_, err = admin.Get(soon, "/bot/k")
	require.Equal(t, backend.Timeout, backend.Classify(err), "%v", err)
}

// The rest: what a test cannot provoke at will, in the form of the client (EtcdError) and as it
// comes out of gRPC, from an interceptor or a stream (status).
func TestEveryKindOfError(t *testing.T) {
	t.Parallel()
	for want, errs := range map[backend.Kind][]error{
		backend.None:     {nil},
		backend.Canceled: {context.Canceled, fmt.Errorf("cause: %w", context.Canceled)},
		backend.Timeout: {
			context.DeadlineExceeded, status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
		},
		backend.LeaseGone: {rpctypes.ErrLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound},
		backend.NoSpace:   {rpctypes.ErrNoSpace, rpctypes.ErrGRPCNoSpace},
		backend.Compacted: {rpctypes.ErrCompacted, rpctypes.ErrGRPCCompacted},
		backend.Denied: {
			rpctypes.ErrPermissionDenied, rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrInvalidAuthToken, rpctypes.ErrGRPCInvalidAuthToken,
			rpctypes.ErrAuthFailed, rpctypes.ErrGRPCAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrGRPCUserEmpty,
			rpctypes.ErrUserNotFound, rpctypes.ErrGRPCUserNotFound, status.Error(codes.Unauthenticated, "?"), status.Error(codes.PermissionDenied, "?"),
		},
		backend.Refused: {
			rpctypes.ErrRequestTooLarge, rpctypes.ErrGRPCRequestTooLarge, rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey, rpctypes.ErrEmptyKey,
			rpctypes.ErrLeaseTTLTooLarge, rpctypes.ErrFutureRev, status.Error(codes.Unimplemented, "unknown service"),
		},
		backend.Failed: {
			errors.New("?"), rpctypes.ErrTooManyRequests, rpctypes.ErrGRPCRequestTooManyRequests, rpctypes.ErrNoLeader, rpctypes.ErrGRPCNoLeader,
			rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrStopped,
			rpctypes.ErrNotCapable, rpctypes.ErrUnhealthy, rpctypes.ErrCorrupt, rpctypes.ErrAuthOldRevision, rpctypes.ErrGRPCAuthOldRevision,
			rpctypes.ErrLeaseExist, status.Error(codes.Unavailable, "connection refused"), status.Error(codes.Canceled, "the connection is closing"),
			status.Error(codes.ResourceExhausted, "received message larger than max (3 vs. 2)"), status.Error(codes.Internal, "?"), status.Error(codes.Unknown, "?"), clientv3.ErrNoAvailableEndpoints,
		},
	} {
		for _, err := range errs {
			require.Equal(t, want, backend.Classify(err), "%v", err)
			if err != nil {
				require.Equal(t, want, backend.Classify(fmt.Errorf("renew: %w", err)), "wrapped %v", err)
			}
		}
	}
}

// A caller that gave up, and a deadline of its own, win over what etcd said meanwhile.
func TestTheContextsErrorComesFirst(t *testing.T) {
	t.Parallel()
	require.Equal(t, backend.Canceled, backend.Classify(errors.Join(rpctypes.ErrNoSpace, context.Canceled)))
	require.Equal(t, backend.Timeout, backend.Classify(errors.Join(rpctypes.ErrNoLeader, context.DeadlineExceeded)))
}
