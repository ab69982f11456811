package integration_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// lagOfExpiry is how long etcd may keep a lease that has run out: it looks twice a second.
const lagOfExpiry = time.Second

// collect gives all events of one type that c has from now on.
func collect[E etcdcoord.Event](t testing.TB, c *etcdcoord.Coordinator) <-chan E {
	events := make(chan E, 1000)
	t.Cleanup(etcdcoord.On(c, func(e E) { events <- e }))
	return events
}

// notYet asserts that nothing has come.
func notYet[T any](t testing.TB, from <-chan T, what string) {
	t.Helper()
	select {
	case v := <-from:
		require.FailNow(t, "too early: "+what, "%+v", v)
	default:
	}
}

// acquired waits for the turn of an AcquireTurn in the background.
func acquired(t testing.TB, from <-chan outcome) *etcdcoord.Turn {
	t.Helper()
	o := got(t, from)
	require.NoError(t, o.err)
	return o.turn
}

// previous asserts who held before.
func previous(t testing.TB, turn *etcdcoord.Turn, replica string) {
	t.Helper()
	id, known := turn.PreviousHolder()
	require.True(t, known, "the previous holder should be known")
	require.Equal(t, replica, id)
}

// B3
func TestKilledHolderIsPassedOverInOrderAndNamed(t *testing.T) {
	t.Parallel()
	const life = 3 * time.Second
	b := newBot(t)
	a := b.child("replica", "a", b.etcd.Endpoints()[0], life)
	fence := a.ask("take chat", "took")
	second, third := b.replica("b"), b.replica("c")
	skippedBefore, left := collect[etcdcoord.TicketSkipped](t, second), collect[etcdcoord.ReplicaLeft](t, second)
	skippedBeforeThird := collect[etcdcoord.TicketSkipped](t, third)
	ofSecond := acquiring(soon(t), second, reserve(t, second, "chat"))
	ofThird := acquiring(soon(t), third, reserve(t, third, "chat"))

	killed := time.Now()
	a.kill()
	turn := acquired(t, ofSecond)
	within(t, killed, life+lagOfExpiry, "the first in line after the kill")
	previous(t, turn, "a")
	require.False(t, turn.Warm())
	require.Greater(t, turn.Fence(), fence)

	e := got(t, skippedBefore)
	require.Equal(t, etcdcoord.TicketSkipped{At: e.At, Key: "chat", Fence: fence, Replica: "a"}, e)
	require.Equal(t, e.Fence, got(t, skippedBeforeThird).Fence, "it stood ahead of that one, too")
	l := got(t, left)
	require.Equal(t, etcdcoord.ReplicaLeft{At: l.At, Replica: "a", Crashed: true}, l)

	notYet(t, ofThird, "a second holder")
	release(t, turn)
	last := acquired(t, ofThird)
	previous(t, last, "b")
	require.Greater(t, last.Fence(), turn.Fence())
	release(t, last)
	notYet(t, skippedBefore, "nothing else was skipped")
	b.noTickets()
}

// B4
func TestKilledWaiterDelaysTheOneBehindItByItsTTLAtMost(t *testing.T) {
	t.Parallel()
	const life = 3 * time.Second
	b := newBot(t)
	first, third := b.replica("a"), b.replica("c")
	turn := take(t, first, "chat")
	second := b.child("replica", "b", b.etcd.Endpoints()[0], life)
	fence := second.ask("wait chat", "waits")
	skipped := collect[etcdcoord.TicketSkipped](t, third)
	behind := acquiring(soon(t), third, reserve(t, third, "chat"))

	killed := time.Now()
	second.kill()
	release(t, turn)
	next := acquired(t, behind)
	within(t, killed, life+lagOfExpiry, "the one behind the killed waiter")
	previous(t, next, "a") // never one that only waited
	e := got(t, skipped)
	require.Equal(t, etcdcoord.TicketSkipped{At: e.At, Key: "chat", Fence: fence, Replica: "b"}, e)
	release(t, next)
	b.noTickets()
}

// B4: while somebody holds, a dead waiter costs nothing.
func TestKilledWaiterBehindALiveHolderIsGoneBeforeItsTurn(t *testing.T) {
	t.Parallel()
	const life = 2 * time.Second
	b := newBot(t)
	first, third := b.replica("a"), b.replica("c")
	turn := take(t, first, "chat")
	second := b.child("replica", "b", b.etcd.Endpoints()[0], life)
	second.ask("wait chat", "waits")
	skipped := collect[etcdcoord.TicketSkipped](t, third)
	behind := acquiring(soon(t), third, reserve(t, third, "chat"))
	second.kill()
	got(t, skipped)
	notYet(t, behind, "the holder holds")
	began := time.Now()
	release(t, turn)
	next := acquired(t, behind)
	within(t, began, 0, "hand-over over a dead waiter")
	previous(t, next, "a")
}

// Not only when somebody next looks, once in a second.
func TestTheNextInLineIsToldWhenADeadReplicasLeaseEnds(t *testing.T) {
	t.Parallel()
	const rounds = 9
	b := newBot(t)
	dies, next := b.replica("a"), b.replica("b")
	var took []time.Duration
	for range rounds {
		take(t, dies, "chat") // in a new epoch from the second round on
		waits := acquiring(soon(t), next, reserve(t, next, "chat"))
		began := time.Now()
		b.revoke(dies)
		turn := acquired(t, waits)
		took = append(took, time.Since(began))
		release(t, turn)
	}
	slices.Sort(took)
	t.Logf("hand-over from a dead replica: %v", took)
	require.Less(t, took[rounds/2], 250*time.Millisecond)
}

// B9: two live processes with one id.
func TestSecondLiveProcessWithOneReplicaIDIsRefusedNamingTheFirst(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	before := time.Now()
	first := b.child("replica", "twin", b.etcd.Endpoints()[0], 6*time.Second)
	fence := first.ask("take chat", "took")
	second := b.unstarted(b.etcd.Client(t), "twin", ttl(6*time.Second))
	began := time.Now()
	err := second.Start(soon(t))
	// The first renews every 2 s, and a renewal is what gives it away.
	within(t, began, 2*time.Second+500*time.Millisecond, "the refusal")
	var inUse *etcdcoord.ReplicaIDInUseError
	require.ErrorAs(t, err, &inUse)
	require.ErrorIs(t, err, etcdcoord.ErrReplicaIDInUse)
	host, hostErr := os.Hostname()
	require.NoError(t, hostErr)
	require.Equal(t, "twin", inUse.ReplicaID)
	require.Equal(t, host, inUse.Host)
	require.Equal(t, first.cmd.Process.Pid, inUse.PID)
	require.WithinRange(t, inUse.Started, before.Add(-time.Millisecond), began)
	require.Equal(t, "new", second.Stats().State)
	_, err = second.Reserve(soon(t), "chat")
	require.ErrorIs(t, err, etcdcoord.ErrNotStarted)

	require.Len(t, b.keys("v1/replicas/"), 1)
	third := b.replica("c")
	waits := acquiring(soon(t), third, reserve(t, third, "chat"))
	require.Len(t, b.tickets(), 2, "the first still holds")
	first.kill()
	require.Greater(t, acquired(t, waits).Fence(), fence)
}

// B9: one process, two coordinators; short leases, whose renewals cannot be seen in whole seconds.
func TestSecondLiveCoordinatorIsRefusedAlsoWithShortSessions(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	first := b.replica("twin", ttl(2*time.Second))
	turn := take(t, first, "chat")
	began := time.Now()
	err := b.unstarted(b.etcd.Client(t), "twin", ttl(2*time.Second)).Start(soon(t))
	within(t, began, 2*time.Second+2*time.Second, "the refusal")
	var inUse *etcdcoord.ReplicaIDInUseError
	require.ErrorAs(t, err, &inUse)
	require.Equal(t, os.Getpid(), inUse.PID)
	require.NoError(t, turn.AssertHeld())
}

// B9: without a live predecessor there is only its lease to wait for.
func TestProcessRestartedWithinTheTTLGetsInAndInheritsNothing(t *testing.T) {
	t.Parallel()
	const life = 3 * time.Second
	b := newBot(t)
	first := b.child("replica", "twin", b.etcd.Endpoints()[0], life)
	fence := first.ask("take chat", "took")
	leads := first.ask("lead cron", "leads")
	other := b.replica("b")
	waits := acquiring(soon(t), other, reserve(t, other, "chat"))

	killed := time.Now()
	first.kill()
	second := b.replica("twin", ttl(life)) // started
	within(t, killed, life+lagOfExpiry, "the restart")
	own := acquiring(soon(t), second, reserve(t, second, "chat"))
	turn := acquired(t, waits)
	previous(t, turn, "twin")
	notYet(t, own, "the former process's turn was inherited")
	require.Zero(t, second.Stats().TurnsHeld)
	require.Zero(t, second.Stats().Leading)
	release(t, turn)
	again := acquired(t, own)
	previous(t, again, "b")
	require.Greater(t, turn.Fence(), fence)
	require.Greater(t, again.Fence(), turn.Fence())
	leadership, err := second.TryLead(soon(t), "cron")
	require.NoError(t, err)
	require.Greater(t, leadership.Fence(), leads)
	release(t, again)

	// The same, with nobody in between: the id is that of the former process, the memory is not.
	alone := b.child("replica", "solo", b.etcd.Endpoints()[0], life)
	alone.ask("take dm", "took")
	alone.kill()
	turn = take(t, b.replica("solo", ttl(life)), "dm")
	previous(t, turn, "solo")
	require.False(t, turn.Warm(), "another process held it")
}
