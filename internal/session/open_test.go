package session_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

func TestOpenRegistersUnderItsLease(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	cfg := config(t, client, prefix)
	cfg.TTL = 2100 * time.Millisecond
	s := open(t, cfg)
	require.Equal(t, 3*time.Second, s.TTL(), "whole seconds, rounded up")
	r := registered(t, cfg)
	require.Equal(t, "first", r.Incarnation)
	require.Equal(t, os.Getpid(), r.PID)
	require.WithinDuration(t, cfg.Started, r.Started, 0)
	require.False(t, r.Stopping)
	require.NoError(t, s.Check())

	answer, err := client.Get(t.Context(), cfg.Schema.Replica("bot"))
	require.NoError(t, err)
	key, mod := s.Registration()
	require.Equal(t, string(answer.Kvs[0].Key), key)
	require.Equal(t, answer.Kvs[0].ModRevision, mod)

	s.End(errStopped)
	require.NotNil(t, registered(t, cfg), "End touches nothing in etcd")
	require.NoError(t, s.Revoke(t.Context()))
	require.Nil(t, registered(t, cfg))
	require.NoError(t, s.Revoke(t.Context()), "repeating is safe")
}

func TestWhatEtcdGrantedIsWhatCounts(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t) // etcd's own timing: 2 s at least
	cfg := config(t, cluster.Client(t), "/p/")
	cfg.TTL, cfg.RenewEvery = 500*time.Millisecond, 100*time.Millisecond
	s := open(t, cfg)
	require.Equal(t, 2*time.Second, s.TTL())
}

func TestMarkStoppingIsSeenByOthers(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	cfg := config(t, client, prefix)
	s := open(t, cfg)
	require.NoError(t, s.MarkStopping(t.Context()))
	require.True(t, registered(t, cfg).Stopping)
	require.Error(t, s.MarkStopping(t.Context()), "the mod revision has moved on")
}

// mattermost-remind#142: two live processes with one id.
func TestALiveDuplicateIsRefusedByName(t *testing.T) {
	t.Parallel()
	for ttl, what := range map[time.Duration]string{
		4 * time.Second: "its time left is seen to rise",
		1 * time.Second: "time left in whole seconds hides the renewals: it outlives its TTL",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			client, prefix := shared(t)
			first := config(t, client, prefix)
			first.TTL, first.RenewEvery = ttl, ttl/3
			s := open(t, first)
			second := first
			second.Incarnation, second.Started = "second", time.Now()
			began := time.Now()
			_, err := session.Open(within(t, patience), second)
			require.Less(t, time.Since(began), 6*time.Second)
			var inUse *session.ReplicaIDInUseError
			require.ErrorAs(t, err, &inUse)
			require.ErrorIs(t, err, session.ErrReplicaIDInUse)
			host, err := os.Hostname()
			require.NoError(t, err)
			require.Equal(t, "bot", inUse.ReplicaID)
			require.Equal(t, host, inUse.Host)
			require.Equal(t, os.Getpid(), inUse.PID)
			require.WithinDuration(t, first.Started, inUse.Started, 0)
			require.NoError(t, s.Check(), "the first is not disturbed")
			require.Equal(t, "first", registered(t, first).Incarnation)
		})
	}
}

func TestTheNextProcessGetsInWhenItsDeadPredecessorExpires(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	first := config(t, client, prefix)
	dead := open(t, first)
	dead.End(errStopped) // no renewal any more, and no revoke: killed
	second := first
	second.Incarnation = "second"
	began := time.Now()
	s, err := session.Open(t.Context(), second) // without a deadline: TTL + RequestTimeout is enough
	require.NoError(t, err)
	defer s.Wait()
	defer s.End(errStopped)
	require.Greater(t, time.Since(began), time.Second, "it waited")
	require.Equal(t, "second", registered(t, second).Incarnation)
}

func TestAContextThatEndsWhileWaitingNamesTheOther(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	first := config(t, client, prefix)
	first.TTL = 20 * time.Second
	open(t, first).End(errStopped)
	second := first
	second.Incarnation = "second"

	_, err := session.Open(within(t, 600*time.Millisecond), second)
	require.ErrorIs(t, err, session.ErrReplicaIDInUse)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no patience")
	time.AfterFunc(300*time.Millisecond, func() { cancel(why) })
	_, err = session.Open(ctx, second)
	require.ErrorIs(t, err, why)
}

func TestOurOwnFormerSessionIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	cfg := config(t, client, prefix)
	cfg.TTL = 30 * time.Second
	former := open(t, cfg)
	former.End(errStopped) // its revoke was lost, say
	began := time.Now()
	s := open(t, cfg)
	require.Less(t, time.Since(began), 5*time.Second)
	require.NotEqual(t, former.Lease(), s.Lease())
	left, err := client.TimeToLive(t.Context(), former.Lease())
	require.NoError(t, err)
	require.EqualValues(t, -1, left.TTL, "its lease is gone, and all that hung on it")
}

func TestOfManyOpensAtOnceOneGetsIn(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	results := make(chan *session.Session, 6)
	for i := range cap(results) {
		cfg := config(t, client, prefix)
		cfg.Incarnation = string(rune('a' + i))
		go func() {
			s, err := session.Open(within(t, patience), cfg)
			if err != nil && !errors.Is(err, session.ErrReplicaIDInUse) {
				t.Errorf("unexpected: %v", err)
			}
			results <- s
		}()
	}
	var in []*session.Session
	for range cap(results) {
		if s := <-results; s != nil {
			in = append(in, s)
		}
	}
	require.Len(t, in, 1)
	require.NoError(t, in[0].Check())
	in[0].End(errStopped)
	in[0].Wait()
}

// leases are those that hang around in the cluster.
func leases(t *testing.T, client *clientv3.Client) int {
	t.Helper()
	answer, err := client.Leases(within(t, patience))
	require.NoError(t, err)
	return len(answer.Leases)
}

func TestALostAnswerToRegisteringIsFoundOut(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks)
	for _, applied := range []bool{true, false} {
		var lost atomic.Int64
		client := cluster.Client(t, func(cfg *clientv3.Config) {
			cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(
				func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					if _, ok := req.(*pb.TxnRequest); !ok || lost.Add(1) > 1 {
						return invoke(ctx, method, req, reply, cc, opts...)
					}
					if applied {
						if err := invoke(ctx, method, req, new(pb.TxnResponse), cc, opts...); err != nil {
							return err
						}
					}
					return status.Error(codes.Unknown, "the answer was lost")
				}))
		})
		cfg := config(t, client, "/p/")
		s, err := session.Open(within(t, patience), cfg)
		if applied {
			require.NoError(t, err)
			_, mod := s.Registration()
			answer, err := client.Get(t.Context(), cfg.Schema.Replica("bot"))
			require.NoError(t, err)
			require.Equal(t, answer.Kvs[0].ModRevision, mod)
			s.End(errStopped)
			require.NoError(t, s.Revoke(t.Context()))
			s.Wait()
		} else {
			require.ErrorContains(t, err, "register")
		}
		require.Zero(t, leases(t, client), "nothing is left behind")
	}
}

func TestOpenGivesUpWhenEtcdCannotBeReached(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{listener.Addr().String()}})
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	cfg := config(t, client, "/p/")
	cfg.RequestTimeout = 300 * time.Millisecond
	began := time.Now()
	_, err = session.Open(t.Context(), cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 2*time.Second)

	why := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, why)
	defer cancel()
	cfg.RequestTimeout = time.Minute
	_, err = session.Open(ctx, cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 4*time.Second)
}

func TestOnlyOurRegistrationsParse(t *testing.T) {
	t.Parallel()
	for value, ok := range map[string]bool{
		`{"incarnation":"i","lease":"7a"}`:  true,
		`{"incarnation":"","lease":"7a"}`:   false,
		`{"incarnation":"i","lease":"x"}`:   false,
		`{"incarnation":"i","lease":"0"}`:   false,
		`{"incarnation":"i","lease":"-5"}`:  false,
		`{"incarnation":"i"}`:               false,
		`not json`:                          false,
		``:                                  false,
		`{"incarnation":1,"lease":"7a"}`:    false,
		`{"incarnation":"i","lease":"7a",}`: false,
	} {
		r, lease, got := session.ParseRegistration([]byte(value))
		require.Equal(t, ok, got, value)
		if ok {
			require.Equal(t, "i", r.Incarnation)
			require.EqualValues(t, 0x7a, lease)
		}
	}
}
