package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/andresayac/botmesh-etcd/election"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

func TestOneLeadsAndTheNextFollowsWithALargerFence(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	first, err := a.Lead(t.Context(), "poller")
	require.NoError(t, err)
	require.Equal(t, "poller", first.Name())
	require.NoError(t, first.AssertHeld())

	next := b.goLead(t.Context(), "poller")
	b.campaigns(t, "poller")
	require.Equal(t, []string{"a", "b"}, candidates(t, a.client, a.schema, "poller"))
	next.waits(t)

	require.NoError(t, first.Resign(t.Context()))
	require.ErrorIs(t, context.Cause(first.Context()), election.ErrReleased)
	require.ErrorIs(t, first.AssertHeld(), election.ErrReleased)
	second := next.wins(t)
	require.Greater(t, second.Fence(), first.Fence())
	require.Equal(t, []string{fmt.Sprintf("gained poller %d", first.Fence())}, a.heard(), "a Resign is no loss")
	require.Equal(t, []string{fmt.Sprintf("gained poller %d", second.Fence())}, b.heard())
	require.NoError(t, second.Resign(t.Context()))
	require.Empty(t, candidates(t, a.client, a.schema, "poller"))
}

func TestFenceIsTheCreateRevisionOfTheKeyAndGuardHoldsWhileItLeads(t *testing.T) {
	t.Parallel()
	a, _ := two(t)
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	require.EqualValues(t, a.campaigns(t, "n"), l.Fence())

	write := func() bool {
		answer, err := a.client.Txn(t.Context()).If(l.Guard()).Then(clientv3.OpPut(a.schema.Prefix()+"data", "x")).Commit()
		require.NoError(t, err)
		return answer.Succeeded
	}
	require.True(t, write())
	require.NoError(t, l.Resign(t.Context()))
	require.False(t, write())
}

func TestBindEndsWithTheLeadership(t *testing.T) {
	t.Parallel()
	a, _ := two(t)
	waiting, cancel := context.WithTimeout(t.Context(), patience)
	l, err := a.Lead(waiting, "n")
	require.NoError(t, err)
	cancel()
	require.NoError(t, l.Context().Err(), "the context of the waiting is not that of the leadership")

	type key struct{}
	work, done := l.Bind(context.WithValue(t.Context(), key{}, "v"))
	defer done()
	require.Equal(t, "v", work.Value(key{}))
	require.NoError(t, l.Resign(t.Context()))
	<-work.Done()
	require.ErrorIs(t, context.Cause(work), election.ErrReleased)
}

func TestAPlainElectionSeesTheLeader(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	plain := plainElection(t, a.schema.Election("poller"))
	_, err := plain.Leader(t.Context())
	require.ErrorIs(t, err, concurrency.ErrElectionNoLeader)
	observed := plain.Observe(within(t, patience))

	l, err := a.Lead(t.Context(), "poller")
	require.NoError(t, err)
	seen := <-observed
	require.Equal(t, "a", string(seen.Kvs[0].Value))
	leader, err := plain.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a", string(leader.Kvs[0].Value))

	next := b.goLead(t.Context(), "poller")
	b.campaigns(t, "poller")
	require.NoError(t, l.Resign(t.Context()))
	next.wins(t)
	seen = <-observed
	require.Equal(t, "b", string(seen.Kvs[0].Value))
}

func TestAPlainCandidateAndOursExcludeEachOther(t *testing.T) {
	t.Parallel()
	a, _ := two(t)
	plain := plainElection(t, a.schema.Election("poller"))
	require.NoError(t, plain.Campaign(t.Context(), "stranger"))

	_, err := a.TryLead(t.Context(), "poller")
	require.ErrorIs(t, err, election.ErrNotElected)
	ours := a.goLead(t.Context(), "poller")
	a.campaigns(t, "poller")
	ours.waits(t)
	fence := plain.Rev()
	require.NoError(t, plain.Resign(t.Context()))
	l := ours.wins(t)
	require.Greater(t, int64(l.Fence()), fence)

	theirs := make(chan error, 1)
	go func() { theirs <- plain.Campaign(t.Context(), "stranger") }()
	eventually(t, "the stranger queues behind", func() bool {
		return len(candidates(t, a.client, a.schema, "poller")) == 2
	})
	require.Empty(t, theirs)
	require.NoError(t, l.AssertHeld())
	require.NoError(t, l.Resign(t.Context()))
	require.NoError(t, <-theirs)
}

func plainElection(t *testing.T, pfx string) *concurrency.Election {
	t.Helper()
	session, err := concurrency.NewSession(testetcd.Shared(t).Client(t), concurrency.WithTTL(5))
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return concurrency.NewElection(session, pfx)
}

func TestALocalContenderCompetesLikeAReplica(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	first, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	local := a.goLead(t.Context(), "n")
	eventually(t, "the local one waits", func() bool { _, c := a.Counts(); return c == 1 })
	remote := b.goLead(t.Context(), "n")
	b.campaigns(t, "n")

	require.NoError(t, first.Resign(t.Context()))
	second := remote.wins(t) // the local one was called first, but enters behind the other replica
	local.waits(t)
	require.NoError(t, second.Resign(t.Context()))
	third := local.wins(t)
	require.Greater(t, third.Fence(), second.Fence())
	require.NoError(t, first.Resign(t.Context()), "repeated, late")
	require.NoError(t, third.AssertHeld())
	require.EqualValues(t, a.campaigns(t, "n"), third.Fence(), "the late Resign did not delete the next leadership's key")
}

func TestLocalContendersComeInTheOrderOfTheirCalls(t *testing.T) {
	t.Parallel()
	a, _ := two(t)
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	var queue []*leading
	enqueue := func(ctx context.Context) *leading {
		_, before := a.Counts()
		p := a.goLead(ctx, "n")
		eventually(t, "it waits", func() bool { _, c := a.Counts(); return c == before+1 })
		return p
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	for i := range 5 {
		if i == 2 {
			gone := enqueue(ctx) // gives up in the middle
			defer func() { require.ErrorIs(t, gone.fails(t), context.Canceled) }()
		}
		queue = append(queue, enqueue(t.Context()))
	}
	cancel(nil)
	for i, p := range queue {
		for _, later := range queue[i:] {
			later.waits(t)
		}
		before := l.Fence()
		require.NoError(t, l.Resign(t.Context()))
		l = p.wins(t)
		require.Greater(t, l.Fence(), before)
	}
}

func TestCancelledLeadReturnsTheCauseAndItsKeyGoes(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	first, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	p := b.goLead(ctx, "n")
	b.campaigns(t, "n")
	why := errors.New("shutting down")
	cancel(why)
	err = p.fails(t)
	require.ErrorIs(t, err, why)
	require.NotErrorIs(t, err, fencing.ErrUnavailable)
	eventually(t, "only the leader is left", func() bool {
		return len(candidates(t, a.client, a.schema, "n")) == 1
	})
	require.NoError(t, first.AssertHeld())
	require.Empty(t, b.heard())

	_, err = b.Lead(ctx, "n")
	require.ErrorIs(t, err, why, "a context that has ended already")
}

// A caller who gives up in the moment of the win gets it, so that nobody leads without knowing.
func TestAWinThatCollidesWithACancelIsHandedOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	a := join(t, testetcd.Shared(t).Client(t), testetcd.Prefix(t), "a", func(_ *session.Config, cfg *election.Config) {
		gained := cfg.Gained
		cfg.Gained = func(name string, fence fencing.Token) {
			cancel() // the caller hears of this first
			time.Sleep(10 * time.Millisecond)
			gained(name, fence)
		}
	})
	l, err := a.Lead(ctx, "n")
	require.NoError(t, err)
	require.NoError(t, l.AssertHeld())
	require.NoError(t, l.Resign(ctx))
	leading, _ := a.Counts()
	require.Zero(t, leading)
}

func TestADeadlineIsAnUnavailabilityWithTheCallersCause(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	_, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	why := errors.New("patience is over")
	for _, who := range []*replica{a, b} { // in the local queue, and in etcd's
		ctx, cancel := context.WithTimeoutCause(t.Context(), 150*time.Millisecond, why)
		defer cancel()
		began := time.Now()
		_, err = who.Lead(ctx, "n")
		require.Less(t, time.Since(began), time.Second)
		var u *fencing.CoordinationUnavailableError
		require.ErrorAs(t, err, &u)
		require.Equal(t, fencing.Timeout, u.Reason)
		require.Equal(t, "n", u.Key)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, why)
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	t.Parallel()
	a, _ := two(t)
	for _, name := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 513)} {
		_, err := a.Lead(t.Context(), name)
		require.ErrorIs(t, err, fencing.ErrInvalidKey)
		_, err = a.TryLead(t.Context(), name)
		require.ErrorIs(t, err, fencing.ErrInvalidKey)
	}
}

func TestNamesDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	a, _ := two(t)
	names := []string{"room/1", "room", "room/", "room/1/x", "roo", "ROOM", "a//b", " ", "%2F", "🤖", strings.Repeat("x", 512)}
	for _, name := range names {
		l, err := a.Lead(within(t, patience), name)
		require.NoError(t, err)
		require.Equal(t, name, l.Name())
	}
	leading, campaigning := a.Counts()
	require.Equal(t, len(names), leading)
	require.Zero(t, campaigning)
}
