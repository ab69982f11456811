package tickets_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// etcd#19597 and F7: a ticket deleted by hand.
func TestATicketDeletedByHandIsNoticed(t *testing.T) {
	t.Parallel()
	t.Run("held", func(t *testing.T) {
		t.Parallel()
		env, a, b := two(t)
		turn := a.take(t, key)
		waiting := acquiring(within(t, patience), b.reserve(t, key))
		env.delete(env.tickets(key)[0])
		got(t, turn.Context().Done())
		lost(t, turn.AssertHeld(), fencing.Evicted)
		next := won(t, waiting)
		require.Greater(t, next.Fence(), turn.Fence())
		release(t, turn) // frees nobody else's
		require.NoError(t, next.AssertHeld())
		require.Len(t, env.tickets(key), 1)
		require.Contains(t, a.heard(), "lost "+key+" "+itoa(turn.Fence())+" evicted")
		release(t, next)
	})
	t.Run("granted and not acquired", func(t *testing.T) {
		t.Parallel()
		env, a, _ := two(t)
		ticket := a.reserve(t, key)
		env.delete(env.tickets(key)[0])
		eventually(t, "not noticed", func() bool { return a.Counts().Waiting == 0 })
		_, err := ticket.Acquire(within(t, patience))
		lost(t, err, fencing.Superseded)
	})
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		env, a, b := two(t)
		turn, waiting := behind(t, a, b)
		env.delete(env.tickets(key)[1])
		lost(t, got(t, waiting).err, fencing.Superseded)
		release(t, turn)
	})
	t.Run("found by the grant", func(t *testing.T) {
		t.Parallel()
		env, a, b := two(t)
		turn, waiting := behind(t, a, b)
		audits := a.tap.every("audit", drop)
		env.delete(env.tickets(key)[1])
		a.TriggerAll()
		lost(t, got(t, waiting).err, fencing.Superseded)
		a.tap.off(audits)
		release(t, turn)
	})
}

// The answer to an audit is old when it comes: the ticket has left, and its slot is another's.
func TestAnOldAuditEvictsNobody(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	turn := a.take(t, key)
	asked, answer := make(chan struct{}), make(chan struct{})
	held := a.tap.first("audit", fault{hold: asked, stall: answer})
	held.happened(t) // it asks for the first ticket
	release(t, turn)
	close(asked) // etcd answers: that one is gone
	next := a.take(t, key)
	require.Equal(t, []string{"0"}, slots(env.tickets(key)), "the slot is the same")
	close(answer)
	again := a.tap.first("audit", fault{})
	again.happened(t)
	require.NoError(t, next.AssertHeld())
	for _, what := range a.heard() {
		require.NotContains(t, what, "lost")
	}
	release(t, next)
}

func TestAFailingAuditTakesNothingAway(t *testing.T) {
	t.Parallel()
	_, a, _ := two(t)
	turn := a.take(t, key)
	a.tap.first("audit", drop)
	a.tap.first("audit", lose)
	eventually(t, "a third audit", func() bool { return a.tap.count("audit") >= 3 })
	require.NoError(t, turn.AssertHeld())
	release(t, turn)
}

// More keys than one transaction has room for, and every one of them needs the audit.
func TestTheAuditLooksAfterEveryKey(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	const n = 150
	for i := range n {
		a.take(t, fmt.Sprint(i))
	}
	for i := range n {
		env.delete(env.tickets(fmt.Sprint(i))[0])
	}
	eventually(t, "some are still held", func() bool { return a.Counts().Held == 0 })
}

func TestTheAuditFindsAHeadOfWhichNobodyTold(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	turn, waiting := behind(t, a, b)
	env.delete(env.tickets(key)[0]) // by hand, so nobody nudges
	mine := won(t, waiting)
	got(t, turn.Context().Done())
	release(t, mine)
}

// A dead replica's tickets are passed over, and told about.
func TestTicketsOfADeadReplicaAreSkippedAndTold(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	c := env.join("c")
	turn := b.take(t, key)
	second := b.reserve(t, key)
	waiting := acquiring(within(t, patience), a.reserve(t, key))
	idle := a.reserve(t, "another key") // nothing of b stands there
	behindA := b.reserve(t, key)
	b.die(t)
	mine := won(t, waiting)
	require.Equal(t, "b", previous(mine), "nobody can tell whether it began")
	eventually(t, "it is not told", func() bool { return len(a.heard()) >= 3 })
	require.ElementsMatch(t, []string{
		"granted " + key + " " + itoa(mine.Fence()),
		"skipped " + key + " " + itoa(turn.Fence()) + " b", "skipped " + key + " " + itoa(second.Fence()) + " b",
	}, a.heard(), "and not %d, which was behind", behindA.Fence())
	require.Empty(t, c.heard(), "it had nothing in line")
	release(t, mine)
	require.NoError(t, idle.Cancel(within(t, patience)))
	b.session.Lose(errStopped)
}

func TestSkippedTicketsThatCannotBeReadDelayNobody(t *testing.T) {
	t.Parallel()
	_, a, b := two(t)
	b.take(t, key)
	waiting := acquiring(within(t, patience), a.reserve(t, key))
	failed := a.tap.every("skipped", drop)
	b.die(t)
	release(t, won(t, waiting))
	failed.happened(t)
	b.session.Lose(errStopped)
}
