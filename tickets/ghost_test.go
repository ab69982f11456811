package tickets_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// slotOf is the end of a ticket's name in etcd.
func slotOf(name string) string { return name[strings.LastIndexByte(name, '-')+1:] }

func slots(names []string) (all []string) {
	for _, name := range names {
		all = append(all, slotOf(name))
	}
	return all
}

// CURATOR-45: a place of which nobody knows would block everyone.
func TestAPlaceWhoseAnswerWasLostIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  fault
		reason fencing.UnavailableReason
		bumps  int64
	}{
		"applied, answer lost":      {lose, fencing.Backend, 0}, // found at once, and removed
		"never arrived":             {drop, fencing.Timeout, 1}, // absent, and made impossible
		"applied, yet no space":     {fullApplied, fencing.NoSpace, 0},
		"not applied, and no space": {full, fencing.NoSpace, 0}, // nothing of it can come any more
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, a, b := two(t)
			a.tap.first("reserve", c.fault)
			ticket, err := a.Reserve(within(t, patience), key)
			require.Nil(t, ticket)
			require.Equal(t, c.reason, unavailable(t, err))
			turn := b.take(t, key)
			require.Empty(t, previous(turn), "nobody was told that it had the turn")
			release(t, turn)
			a.idle(t)
			env.empty(key)
			require.Equal(t, c.bumps, env.bumps("a"))
			release(t, a.take(t, key))
		})
	}
}

func TestALateReserveIsNotAppliedOnceItsSlotIsSettled(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	a.tap.first("reserve", keep)
	_, err := a.Reserve(within(t, patience), key)
	require.Equal(t, fencing.Timeout, unavailable(t, err))
	a.idle(t)
	turn := a.take(t, key) // in the same slot
	require.Equal(t, []string{"0"}, slots(env.tickets(key)))
	late := a.tap.deliver(within(t, patience))
	require.Equal(t, []delivered{{"reserve", false, nil}}, late, "refused")
	require.NoError(t, turn.AssertHeld())
	release(t, turn)
	require.Equal(t, []delivered{}, append([]delivered{}, a.tap.deliver(within(t, patience))...))
	release(t, b.take(t, key))
	env.empty(key)
}

// The same with a free slot: nobody would ever remove what a late request has put there.
func TestALateReserveLeavesNothingInAFreeSlot(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	a.tap.first("reserve", keep)
	_, err := a.Reserve(within(t, patience), key)
	unavailable(t, err)
	a.idle(t)
	require.False(t, a.tap.deliver(within(t, patience))[0].succeeded)
	require.Empty(t, env.tickets(key))
}

func TestASlotIsNotUsedAgainBeforeItsLostReserveIsSettled(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	a.tap.first("reserve", keep)
	settling := a.tap.every("settle", drop)
	_, err := a.Reserve(within(t, patience), key)
	unavailable(t, err)
	settling.happened(t)
	require.Equal(t, tickets.Counts{Ghosts: 1}, a.Counts())

	second := a.reserve(t, key)
	require.Equal(t, []string{"1"}, slots(env.tickets(key)))
	require.True(t, a.tap.deliver(within(t, patience))[0].succeeded, "it is not settled yet, so it comes")
	require.Equal(t, []string{"1", "0"}, slots(env.tickets(key)))
	a.tap.off(settling)
	eventually(t, "the ghost stays", func() bool { return a.Counts() == tickets.Counts{Waiting: 1} })
	require.Equal(t, []string{"1"}, slots(env.tickets(key)))
	a.reserve(t, key)
	require.Equal(t, []string{"1", "0"}, slots(env.tickets(key)), "the slot is free again")
	release(t, acquire(t, second))
}

func TestOneBumpSettlesAllGhostsOfAnOutage(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	outage := a.tap.every("reserve", drop)
	settling := a.tap.every("settle", drop)
	for i := range 20 {
		_, err := a.Reserve(within(t, patience), fmt.Sprint("key ", i))
		unavailable(t, err)
	}
	require.Equal(t, 20, a.Counts().Ghosts)
	settling.happened(t)
	a.tap.off(outage)
	a.tap.off(settling)
	a.idle(t)
	require.EqualValues(t, 1, env.bumps("a"))
}

// A bump makes reserves that are under way fail their compare. They are sent again, unseen.
func TestAReserveThatABumpHasOvertakenIsSentAgain(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	go1 := make(chan struct{})
	held := a.tap.first("reserve", fault{hold: go1})
	done := make(chan error, 1)
	go func() {
		_, err := a.Reserve(within(t, patience), "slow")
		done <- err
	}()
	held.happened(t)
	a.tap.first("reserve", drop)
	_, err := a.Reserve(within(t, patience), "lost")
	unavailable(t, err)
	eventually(t, "no bump", func() bool { return env.bumps("a") == 1 && a.Counts().Ghosts == 0 })
	close(go1)
	require.NoError(t, got(t, done))
	require.Len(t, env.tickets("slow"), 1)
}

func TestSettlingIsRepeatedWhateverHappensToIt(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"answer lost": lose, "dropped": drop, "late": keep, "no space": full, "no space, applied": fullApplied, "denied": denied} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, a, _ := two(t)
			a.tap.first("reserve", drop)
			settled := a.tap.on(isA("settle"), 2, f)
			_, err := a.Reserve(within(t, patience), key)
			unavailable(t, err)
			settled.happened(t)
			a.idle(t)
			require.GreaterOrEqual(t, env.bumps("a"), int64(1))
			a.tap.deliver(within(t, patience))
			release(t, a.take(t, key))
		})
	}
}

// While etcd is full, a ghost that may still come cannot be settled. It must not keep another one,
// which stands in etcd in front of everybody, from being removed.
func TestAGhostThatMustWaitForSpaceDoesNotKeepOthersFromLeaving(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	fullEtcd := a.tap.every("settle", full)
	a.tap.first("reserve", keep)
	_, err := a.Reserve(within(t, patience), "first")
	unavailable(t, err)
	fullEtcd.happened(t)
	for i, f := range []fault{lose, fullApplied} {
		blocked := fmt.Sprint("blocked ", i)
		a.tap.first("reserve", f)
		_, err = a.Reserve(within(t, patience), blocked)
		unavailable(t, err)
		env.empty(blocked)
		release(t, b.take(t, blocked))
	}
	require.Equal(t, tickets.Counts{Ghosts: 1}, a.Counts(), "that one waits")
	a.tap.off(fullEtcd)
	a.idle(t)
	require.False(t, a.tap.deliver(within(t, patience))[0].succeeded)
}

func TestAReserveGivenUpByItsCallerIsSettledToo(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	mine := errors.New("my own reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	never := make(chan struct{})
	stalled := a.tap.first("reserve", fault{stall: never}) // applied, and the answer hangs
	failed := make(chan error, 1)
	go func() {
		_, err := a.Reserve(ctx, key)
		failed <- err
	}()
	stalled.happened(t)
	eventually(t, "applied", func() bool { return len(env.tickets(key)) == 1 })
	cancel(mine)
	err := got(t, failed)
	require.ErrorIs(t, err, mine)
	require.NotErrorIs(t, err, fencing.ErrUnavailable)
	release(t, b.take(t, key))
	a.idle(t)
	env.empty(key)
}

func TestWhatEtcdRefusesForGoodLeavesTheSlotFree(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	a.tap.first("reserve", denied)
	_, err := a.Reserve(within(t, patience), key)
	require.Equal(t, fencing.Denied, unavailable(t, err))
	require.Equal(t, tickets.Counts{}, a.Counts())
	require.Zero(t, env.bumps("a"))

	// etcd refuses requests of more than 1.5 MiB, and the value is in both branches.
	_, err = a.Reserve(within(t, patience), key, tickets.WithNote(strings.Repeat("x", 900_000)))
	require.Equal(t, fencing.Backend, unavailable(t, err))
	require.Equal(t, tickets.Counts{}, a.Counts())
	require.Zero(t, env.bumps("a"))
}

// Nobody of ours can have put it there. It is settled like a lost answer, and the slot works again.
func TestAKeyThatStandsInAFreeSlotIsRemoved(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	lease, err := env.client.Grant(within(t, patience), 60)
	require.NoError(t, err)
	own := env.schema.Ticket(key, int64(a.session.Lease()), 0)
	env.put(own, "{}", lease.ID)
	_, err = a.Reserve(within(t, patience), key)
	require.Equal(t, fencing.Backend, unavailable(t, err))
	require.ErrorContains(t, err, own)
	a.idle(t)
	env.empty(key)
	release(t, a.take(t, key))
}
