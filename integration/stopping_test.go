package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// Who only looks for ErrUnavailable must hear that the places are not confirmed to be free.
func TestStopThatIsCancelledMidwaySaysThatItIsNotConfirmed(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, proxy := b.apart("a", ttl(30*time.Second))
	turn := take(t, a, "chat")
	proxy.Drop()
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- a.Stop(ctx) }()
	<-turn.Context().Done()
	cancel(errWhy)
	err := got(t, stopped)
	var unavailable *etcdcoord.CoordinationUnavailableError
	require.ErrorAs(t, err, &unavailable)
	require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
	require.ErrorIs(t, err, errWhy)
	require.Equal(t, "stop", unavailable.Op)

	again, cancelAgain := context.WithCancel(t.Context())
	go func() { stopped <- a.Stop(again) }()
	notYet(t, stopped, "etcd has not heard of it")
	cancelAgain()
	require.ErrorIs(t, got(t, stopped), etcdcoord.ErrUnavailable)

	proxy.Heal()
	release(t, take(t, b.replica("b"), "chat")) // it went on without its caller
	require.NoError(t, a.Stop(soon(t)))
}

// The answer to an Acquire is lost, and its caller has not given up when Stop comes.
func TestLeaseVerbThatStopOvertakesLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, life := range map[string]time.Duration{
		"it gives up by itself":      time.Second,
		"Stop does not wait so long": time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBot(t)
			applied := make(chan struct{}, 1)
			client := b.etcd.Client(t, func(cfg *clientv3.Config) {
				cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(
					func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
						if _, ok := req.(*etcdserverpb.TxnRequest); !ok || ctx.Value(loseKey{}) == nil {
							return invoke(ctx, method, req, reply, cc, opts...)
						}
						if err := invoke(context.WithoutCancel(ctx), method, req, new(etcdserverpb.TxnResponse), cc, opts...); err != nil {
							return err
						}
						applied <- struct{}{}
						<-ctx.Done()
						return ctx.Err()
					}))
			})
			a := b.unstarted(client, "a")
			require.NoError(t, a.Start(soon(t)))
			ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), loseKey{}, true), life)
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := a.Leases().Acquire(ctx, "job", "me", time.Hour)
				failed <- err
			}()
			got(t, applied)
			require.Len(t, b.keys("v1/leases/"), 1)
			require.NoError(t, a.Stop(soon(t)))
			err := got(t, failed)
			require.True(t, errors.Is(err, etcdcoord.ErrUnavailable) || errors.Is(err, etcdcoord.ErrStopped), "%v", err)
			require.Empty(t, b.keys("v1/leases/"), "Stop has waited for the clean-up")
		})
	}
}

type loseKey struct{}

// Somebody's plain Put over the registration costs the session, and must not cost the replica.
func TestReplicaHealsAfterItsRegistrationWasWrittenOverByHand(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a := b.replica("a", ttl(2*time.Second))
	gone, restored := collect[etcdcoord.SessionLost](t, a), collect[etcdcoord.SessionRestored](t, a)
	b.put("v1/replicas/a", "oops", clientv3.NoLease)
	release(t, take(t, a, "chat")) // the first use of the session finds out
	got(t, gone)
	got(t, restored)
}
