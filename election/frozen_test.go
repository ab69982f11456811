package election_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/andresayac/botmesh-etcd/election"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/clock"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

// freezable is the clock of a replica that was stopped for a while: it jumps, and no timer fires.
type freezable struct{ ahead atomic.Int64 }

func (f *freezable) jump(d time.Duration) { f.ahead.Add(int64(d)) }

func (f *freezable) option() rigOption {
	return func(s *session.Config, _ *election.Config) {
		s.Clock = func() time.Duration { return clock.System() + time.Duration(f.ahead.Load()) }
		s.TTL, s.RenewEvery = time.Minute, 20*time.Second // timers do not find out soon
	}
}

// etcd#11457: Jepsen's paused client.
func TestAFrozenLeaderKnowsAtOnceAndItsResignDeletesNothing(t *testing.T) {
	t.Parallel()
	frozen, prefix := &freezable{}, testetcd.Prefix(t)
	a := join(t, testetcd.Shared(t).Client(t), prefix, "a", frozen.option())
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	require.NoError(t, l.AssertHeld())
	frozen.jump(time.Minute)
	require.ErrorIs(t, l.AssertHeld(), fencing.ErrLeaseLost)
	requireLost(t, l, fencing.Expired)
	require.NoError(t, l.Resign(t.Context()))
	require.Len(t, candidates(t, a.client, a.schema, "n"), 1, "the lease takes the key, once etcd is sure")
	eventually(t, "told", func() bool { return len(a.heard()) == 2 })
	require.Contains(t, a.heard()[1], "expired")
}

func TestAResignFindsOutThatTheLeaderWasFrozen(t *testing.T) {
	t.Parallel()
	frozen, prefix := &freezable{}, testetcd.Prefix(t)
	a := join(t, testetcd.Shared(t).Client(t), prefix, "a", frozen.option())
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	frozen.jump(time.Minute)
	require.NoError(t, l.Resign(t.Context()))
	requireLost(t, l, fencing.Expired)
	require.Len(t, candidates(t, a.client, a.schema, "n"), 1)
}

func TestAFrozenCandidateDoesNotWin(t *testing.T) {
	t.Parallel()
	frozen, prefix := &freezable{}, testetcd.Prefix(t)
	a := join(t, testetcd.Shared(t).Client(t), prefix, "a")
	tp := &tap{}
	b := join(t, tp.client(t, testetcd.Shared(t)), prefix, "b", frozen.option())
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	key := b.ownKey("n")
	// It is frozen between etcd's answer to the last look at its key and the hand-over.
	tp.observe(func(r *pb.TxnRequest, answer *pb.TxnResponse) {
		if len(r.Compare) == 3 && string(r.Compare[0].Key) == key && answer.Succeeded {
			frozen.jump(time.Minute)
		}
	})
	p := b.goLead(t.Context(), "n")
	b.campaigns(t, "n")
	require.NoError(t, l.Resign(t.Context()))
	require.ErrorIs(t, p.fails(t), election.ErrSessionEnded)
	require.Empty(t, b.heard())
}

func TestAFrozenTryLeadDoesNotWin(t *testing.T) {
	t.Parallel()
	frozen, tp := &freezable{}, &tap{}
	a := join(t, tp.client(t, testetcd.Shared(t)), testetcd.Prefix(t), "a", frozen.option())
	matches := puts(a.ownKey("n"))
	tp.observe(func(r *pb.TxnRequest, answer *pb.TxnResponse) {
		if matches(r) && answer.Succeeded {
			frozen.jump(time.Minute)
		}
	})
	_, err := a.TryLead(t.Context(), "n")
	require.ErrorIs(t, err, election.ErrSessionEnded)
	require.Empty(t, a.heard())
}

// concurrency.Election would put the key by itself, with nothing that could settle the put.
func TestEveryPutOfACandidateNamesTheRegistration(t *testing.T) {
	t.Parallel()
	a, b, tp := tapped(t) // a is tapped
	registration, _ := a.session.Registration()
	var put, bad atomic.Int64
	matches := puts(a.ownKey("n"))
	tp.observe(func(r *pb.TxnRequest, _ *pb.TxnResponse) {
		if !matches(r) {
			return
		}
		put.Add(1)
		for _, c := range r.Compare {
			if string(c.Key) == registration && c.Target == pb.Compare_MOD {
				return
			}
		}
		bad.Add(1)
	})
	l, err := b.Lead(t.Context(), "n")
	require.NoError(t, err)
	p := a.goLead(t.Context(), "n")
	for range 3 { // the stock Campaign is interrupted, and begins again without its key
		a.campaigns(t, "n")
		before := put.Load()
		_, err = b.client.Delete(t.Context(), a.ownKey("n"))
		require.NoError(t, err)
		eventually(t, "put again", func() bool { return put.Load() > before })
	}
	a.campaigns(t, "n")
	require.NoError(t, l.Resign(t.Context()))
	p.wins(t)
	require.Zero(t, bad.Load())
}
