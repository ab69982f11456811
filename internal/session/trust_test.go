package session_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/andresayac/botmesh-etcd/internal/session"
)

// endsAt waits for the end of the session, in the bubble's time.
func endsAt(t *testing.T, f *scripted, s *session.Session) time.Duration {
	t.Helper()
	<-s.Done()
	s.Wait()
	return time.Since(f.began)
}

func TestWithoutRenewalsTrustEndsAMarginBeforeTheTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{}
		s := f.open(t, hang)
		require.NoError(t, s.Check())
		require.Equal(t, 8*time.Second, s.TrustLeft())
		require.Equal(t, 8*time.Second, endsAt(t, f, s))
		require.ErrorIs(t, s.Check(), session.ErrLost)
		require.ErrorIs(t, s.Err(), session.ErrLost)
		require.ErrorIs(t, s.Err(), context.DeadlineExceeded, "it says how the renewals failed")
		require.Zero(t, s.TrustLeft())
		require.False(t, f.revoked, "the session never revokes by itself")
	})
}

func TestAHangingRenewalCostsOneAttemptAndNotTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{}
		s := f.open(t, func(ctx context.Context, n int) error {
			if n == 1 {
				return hang(ctx, n)
			}
			return nil
		})
		time.Sleep(time.Minute)
		require.NoError(t, s.Check())
		sent := f.sent()
		require.Equal(t, 3*time.Second, sent[0])
		require.Less(t, sent[1], 7*time.Second, "bounded by a third of the TTL, and tried again soon")
		s.End(errors.New("done"))
		s.Wait()
	})
}

// The answer takes 2.9 s each time: what counts is when the renewal was sent.
func TestASlowAnswerBuysNoTrust(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{}
		s := f.open(t, func(ctx context.Context, n int) error {
			if n > 1 {
				return hang(ctx, n)
			}
			select {
			case <-time.After(2900 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		require.Equal(t, 3*time.Second+8*time.Second, endsAt(t, f, s)) // sent at 3 s, and not answered at 5.9 s
	})
}

func TestAnAnswerAfterTheEndDoesNotRevive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{}
		answer, jumped := make(chan struct{}), atomic.Int64{}
		s := f.open(t, func(context.Context, int) error {
			<-answer // also when the attempt has been given up
			return nil
		}, func(cfg *session.Config) {
			bubble := cfg.Clock
			cfg.Clock = func() time.Duration { return bubble() + time.Duration(jumped.Load()) }
		})
		time.Sleep(4 * time.Second) // the first renewal is under way
		jumped.Store(int64(4 * time.Second))
		close(answer) // in time by every timer, too late by the clock
		synctest.Wait()
		require.ErrorIs(t, s.Check(), session.ErrLost)
		select {
		case <-s.Done():
		default:
			require.Fail(t, "Done is open")
		}
		s.Wait()
	})
}

// etcd#11457: the process was stopped, and no timer has fired yet when it goes on.
func TestCheckFailsAtOnceWhenTheClockJumps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, jumped := &scripted{}, atomic.Int64{}
		s := f.open(t, func(context.Context, int) error { return nil }, func(cfg *session.Config) {
			bubble := cfg.Clock
			cfg.Clock = func() time.Duration { return bubble() + time.Duration(jumped.Load()) }
		})
		jumped.Store(int64(8*time.Second - 1))
		require.NoError(t, s.Check())
		require.Equal(t, time.Duration(1), s.TrustLeft())
		jumped.Store(int64(8 * time.Second))
		require.Zero(t, s.TrustLeft(), "it looks at the clock as well")
		require.ErrorIs(t, s.Check(), session.ErrLost)
		<-s.Done() // closed by Check itself: no time passes here
		require.Zero(t, time.Since(f.began))
		jumped.Store(0)
		require.ErrorIs(t, s.Check(), session.ErrLost, "it stays so")
		s.Wait()
	})
}

func TestALeaseThatEtcdDoesNotKnowEndsTheSessionAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{}
		s := f.open(t, func(context.Context, int) error { return rpctypes.ErrLeaseNotFound })
		require.Equal(t, 3*time.Second, endsAt(t, f, s))
		require.ErrorIs(t, s.Err(), session.ErrLost)
		require.Len(t, f.sent(), 1)
	})
}

// etcd#14850
func TestDeniedRenewalsAreRepeatedWithoutAStormUntilTheWindowEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{}
		s := f.open(t, func(context.Context, int) error { return rpctypes.ErrPermissionDenied })
		require.Equal(t, 8*time.Second, endsAt(t, f, s))
		require.ErrorContains(t, s.Err(), "permission")
		require.Len(t, f.sent(), 2)
	})
}

func TestFailedRenewalsAreRepeatedSoonButNotInAStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &scripted{}
		s := f.open(t, func(_ context.Context, n int) error {
			if n <= 6 {
				return rpctypes.ErrTooManyRequests
			}
			return nil
		})
		time.Sleep(7 * time.Second)
		require.NoError(t, s.Check())
		require.GreaterOrEqual(t, len(f.sent()), 7)
		require.LessOrEqual(t, len(f.sent()), 10)
		s.End(errors.New("done"))
		s.Wait()
	})
}

func TestTheFirstReasonStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, first := &scripted{}, errors.New("first")
		s := f.open(t, hang)
		require.NoError(t, s.Err())
		s.End(first)
		s.Lose(errors.New("second"))
		s.End(errors.New("third"))
		require.Equal(t, first, s.Err())
		require.Equal(t, first, s.Check())
		s.Wait()
		require.Less(t, time.Since(f.began), time.Second)
	})
}

func TestRevisionsOnlyRise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := (&scripted{}).open(t, hang)
		defer s.Wait()
		defer s.End(errors.New("done"))
		s.Saw(40)
		s.Saw(30)
		id, revision := s.Cluster()
		require.EqualValues(t, 7, id)
		require.EqualValues(t, 40, revision)
		for _, mod := range []int64{50, 45} {
			kv := &mvccpb.KeyValue{ModRevision: mod, Lease: int64(s.Lease())}
			require.NoError(t, s.SawRegistration([]*mvccpb.KeyValue{kv}))
		}
		key, mod := s.Registration()
		require.Equal(t, "/p/v1/replicas/r", key)
		require.EqualValues(t, 50, mod)
	})
}
