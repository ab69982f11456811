package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/andresayac/botmesh-etcd/election"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// tapped is a replica behind a tap, and one beside it.
func tapped(t *testing.T, opts ...rigOption) (a, b *replica, tp *tap) {
	t.Helper()
	prefix := testetcd.Prefix(t)
	tp = &tap{}
	a = join(t, tp.client(t, testetcd.Shared(t)), prefix, "a", opts...)
	b = join(t, testetcd.Shared(t).Client(t), prefix, "b", opts...)
	return a, b, tp
}

func TestAPutWhoseAnswerWasLostKeepsItsPlace(t *testing.T) {
	t.Parallel()
	a, b, tp := tapped(t)
	first, err := b.Lead(t.Context(), "n")
	require.NoError(t, err)
	tp.play(loseAnswer, puts(a.ownKey("n")))
	p := a.goLead(t.Context(), "n")
	eventually(t, "the answer is lost", func() bool { return tp.played() == 1 })
	rev := a.campaigns(t, "n")
	tp.stop()
	require.NoError(t, first.Resign(t.Context()))
	require.EqualValues(t, rev, p.wins(t).Fence())
}

// etcd-cpp-apiv3#263, CURATOR-45: an attempt of which nobody knows must not block the others for ever.
func TestTryLeadWhoseAnswerWasLostLeavesNoGhost(t *testing.T) {
	t.Parallel()
	a, b, tp := tapped(t)
	tp.play(loseAnswer, puts(a.ownKey("n")))
	_, err := a.TryLead(t.Context(), "n")
	require.ErrorIs(t, err, fencing.ErrUnavailable)
	require.Equal(t, 1, tp.played())
	require.Empty(t, a.heard())
	l, err := b.Lead(within(t, patience), "n")
	require.NoError(t, err)
	require.NoError(t, l.Resign(t.Context()))

	tp.stop()
	_, err = a.TryLead(within(t, patience), "n")
	require.NoError(t, err, "the name is free again here, too")
}

// The request that was given up on is delivered after the clean-up, and must not be applied.
func TestALatePutIsNotApplied(t *testing.T) {
	t.Parallel()
	for verb, attempt := range map[string]func(*replica, *tap) error{
		"TryLead": func(a *replica, _ *tap) error {
			_, err := a.TryLead(t.Context(), "n")
			return err
		},
		"Lead": func(a *replica, tp *tap) error {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := a.Lead(ctx, "n")
			return err
		},
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			a, b, tp := tapped(t)
			_, before := a.session.Registration()
			tp.play(keepBack, puts(a.ownKey("n")))
			require.ErrorIs(t, attempt(a, tp), fencing.ErrUnavailable)
			require.NotZero(t, tp.played())
			tp.stop()

			// The local queue opens only when the lost put is settled.
			l, err := a.Lead(within(t, patience), "n")
			require.NoError(t, err)
			_, after := a.session.Registration()
			require.Greater(t, after, before, "settled by putting the registration again")
			require.NoError(t, l.Resign(t.Context()))
			require.NoError(t, tp.deliver())
			require.Empty(t, candidates(t, b.client, b.schema, "n"))

			_, err = b.TryLead(t.Context(), "n")
			require.NoError(t, err)
		})
	}
}

func TestNobodyHereStartsBeforeALostPutIsSettled(t *testing.T) {
	t.Parallel()
	a, _, tp := tapped(t)
	registration, _ := a.session.Registration()
	ownKey, bump := puts(a.ownKey("n")), puts(registration)
	tp.play(loseBoth, func(r *txnRequest) bool { return ownKey(r) || bump(r) })
	_, err := a.TryLead(t.Context(), "n")
	require.ErrorIs(t, err, fencing.ErrUnavailable)
	eventually(t, "settling is tried again and again", func() bool { return tp.played() > 3 })

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = a.TryLead(ctx, "n")
	require.ErrorIs(t, err, fencing.ErrUnavailable, "it waits for the settling, and says that it could not")
	waiting := a.goLead(t.Context(), "n")
	eventually(t, "settling goes on", func() bool { return tp.played() > 6 })
	waiting.waits(t)
	require.Empty(t, candidates(t, a.client, a.schema, "n"))
	tp.stop()
	waiting.wins(t)
}

func TestAResignWhoseAnswerWasLostIsRepeatedUntilConfirmed(t *testing.T) {
	t.Parallel()
	a, b, tp := tapped(t)
	for _, what := range []trick{loseAnswer, loseBoth} {
		l, err := a.Lead(t.Context(), "n")
		require.NoError(t, err)
		next := b.goLead(t.Context(), "n")
		b.campaigns(t, "n")
		local := a.goLead(t.Context(), "n")
		tp.play(what, deletes(a.ownKey("n")))

		err = l.Resign(t.Context())
		var u *fencing.CoordinationUnavailableError
		require.ErrorAs(t, err, &u)
		require.Equal(t, "resign", u.Op)
		require.ErrorIs(t, context.Cause(l.Context()), election.ErrReleased)
		eventually(t, "repeated in the background", func() bool { return tp.played() > 2 })
		local.waits(t)
		require.ErrorIs(t, l.Resign(t.Context()), fencing.ErrUnavailable, "still not confirmed")

		tp.stop()
		second := next.wins(t)
		require.NoError(t, l.Resign(t.Context()))
		require.NoError(t, second.Resign(t.Context()))
		third := local.wins(t)
		require.Greater(t, third.Fence(), second.Fence())
		require.NoError(t, third.Resign(t.Context()))
	}
}

// etcd#22082: a delete that is applied late must not end the next leadership.
func TestALateDeleteDoesNotEndTheNextLeadership(t *testing.T) {
	t.Parallel()
	a, _, tp := tapped(t)
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	tp.play(keepBack, deletes(a.ownKey("n")))
	require.ErrorIs(t, l.Resign(t.Context()), fencing.ErrUnavailable)
	tp.stop()
	second, err := a.Lead(within(t, patience), "n")
	require.NoError(t, err)
	require.NoError(t, tp.deliver())
	require.EqualValues(t, a.campaigns(t, "n"), second.Fence())
	require.NoError(t, second.AssertHeld())
}

// etcd#22123: the context of a deferred Resign has usually ended.
func TestResignWorksWithAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	a, b, tp := tapped(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	require.NoError(t, l.Resign(ended))
	_, err = b.TryLead(t.Context(), "n")
	require.NoError(t, err)

	// One that ends meanwhile is obeyed, and what was not confirmed is said to be so.
	other, err := a.Lead(t.Context(), "other")
	require.NoError(t, err)
	tp.play(loseBoth, deletes(a.ownKey("other")))
	ctx, cancelNow := context.WithCancelCause(t.Context())
	why := errors.New("no time")
	tp.onTrick(func() { cancelNow(why) })
	err = other.Resign(ctx)
	require.ErrorIs(t, err, fencing.ErrUnavailable)
	require.ErrorIs(t, err, why)
}

func TestAVerificationThatFailsIsRepeated(t *testing.T) {
	t.Parallel()
	a, _, tp := tapped(t)
	key := a.ownKey("n")
	tp.play(loseAnswer, func(r *txnRequest) bool { // the look at the own key: compares it, writes nothing
		return len(r.Success) == 0 && len(r.Compare) == 3 && string(r.Compare[0].Key) == key
	})
	p := a.goLead(t.Context(), "n")
	eventually(t, "it looked", func() bool { return tp.played() > 2 })
	p.waits(t)
	require.Empty(t, a.heard())
	tp.stop()
	require.EqualValues(t, a.campaigns(t, "n"), p.wins(t).Fence())
}

// A local contender gives up in the very moment in which his turn comes: it must not be lost.
func TestATurnThatCollidesWithACancelGoesToTheNext(t *testing.T) {
	t.Parallel()
	a, _, tp := tapped(t)
	gaveUp := 0
	for range 60 {
		l, err := a.Lead(within(t, patience), "n")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		p := a.goLead(ctx, "n")
		eventually(t, "it waits", func() bool { _, c := a.Counts(); return c == 1 })
		isDelete := deletes(a.ownKey("n"))
		tp.observe(func(r *txnRequest, _ *pb.TxnResponse) {
			if isDelete(r) {
				cancel() // just before the Resign frees the name
			}
		})
		require.NoError(t, l.Resign(t.Context()))
		if p.ends(t); p.err == nil {
			require.NoError(t, p.l.Resign(t.Context()))
		} else {
			require.ErrorIs(t, p.err, context.Canceled)
			gaveUp++
		}
		tp.observe(nil)
	}
	require.NotZero(t, gaveUp)
	l, err := a.Lead(within(t, patience), "n")
	require.NoError(t, err)
	require.NoError(t, l.Resign(t.Context()))
}
