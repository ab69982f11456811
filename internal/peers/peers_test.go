package peers_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/peers"
)

func TestWhoComesAndGoesIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testetcd.Shared(t))
	old := w.arrives("old") // before anybody looked: not told that it joined, but that it left
	f := w.follow(w.plain, nil)
	b := w.arrives("b")
	require.Equal(t, "joined b", f.next())
	c := w.arrives("c/ é")
	require.Equal(t, "joined c/ é", f.next())
	require.Equal(t, left("c/ é", int64(c.lease), w.dies(c), true), f.next())
	require.Equal(t, left("b", int64(b.lease), w.stops(b), false), f.next())
	require.Equal(t, left("old", int64(old.lease), w.dies(old), true), f.next())
}

func TestAReplicaIsNotToldOfItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testetcd.Shared(t))
	f := w.follow(w.plain, nil)
	w.dies(w.arrives("a"))
	w.arrives("b")
	require.Equal(t, "joined b", f.next())
}

// Settling a lost Reserve puts the registration again. That is no news.
func TestARegistrationThatIsPutAgainIsNoNews(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testetcd.Shared(t))
	f := w.follow(w.plain, nil)
	b := w.arrives("b")
	require.Equal(t, "joined b", f.next())
	w.registers(b)
	w.arrives("c")
	require.Equal(t, "joined c", f.next())
}

func TestTheSameIdMayComeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testetcd.Shared(t))
	f := w.follow(w.plain, nil)
	first := w.arrives("b")
	require.Equal(t, "joined b", f.next())
	gone := w.dies(first)
	second := w.arrives("b")
	require.Equal(t, left("b", int64(first.lease), gone, true), f.next())
	require.Equal(t, "joined b", f.next())
	require.Equal(t, left("b", int64(second.lease), w.dies(second), true), f.next())
}

// What no replica of ours wrote is nobody that could have joined. But when it vanishes, what hung on
// its lease has vanished, too, and somebody may have been waiting for that.
func TestForeignValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testetcd.Shared(t))
	lease, err := w.plain.Grant(within(t, patience), 60)
	require.NoError(t, err)
	w.put(w.schema.Replica("early"), "rubbish", lease.ID)
	f := w.follow(w.plain, nil)
	for id, value := range map[string]string{
		"x": "", "y": "null", "z": `{"incarnation":"z","lease":"-1"}`, "u": `{"incarnation":"u","lease":"xyz"}`, "v": `{"lease":"1f"}`,
	} {
		w.put(w.schema.Replica(id), value, lease.ID)
	}
	w.put(w.schema.Replicas()+"%zz", "not a name", lease.ID)
	w.put(w.schema.Replicas()+"x/y", "not a name", lease.ID)
	revoked, err := w.plain.Revoke(within(t, patience), lease.ID)
	require.NoError(t, err)
	var told []string
	for range 6 {
		told = append(told, f.next())
	}
	var want []string
	for _, id := range []string{"early", "x", "y", "z", "u", "v"} {
		want = append(want, left(id, 0, revoked.Header.Revision, true))
	}
	require.ElementsMatch(t, want, told)
	w.arrives("b")
	require.Equal(t, "joined b", f.next())
}

// A known replica whose value was overwritten is still there.
func TestAForeignValueOverAKnownReplicaChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testetcd.Shared(t))
	f := w.follow(w.plain, nil)
	b := w.arrives("b")
	require.Equal(t, "joined b", f.next())
	w.put(w.schema.Replica("b"), "rubbish", b.lease)
	require.Equal(t, left("b", int64(b.lease), w.dies(b), true), f.next())
}

// The client opens the stream again by itself, and may or may not tell. Nothing is missed either way.
func TestNothingIsMissedWhenTheServerRestarts(t *testing.T) {
	t.Parallel()
	etcd := testetcd.New(t, testetcd.FastTicks)
	w := newWorld(t, etcd)
	f := w.follow(etcd.Client(t), nil)
	for _, id := range []string{"b", "c"} {
		s := w.arrives(id)
		require.Equal(t, "joined "+id, f.news())
		require.NoError(t, etcd.Member(0).Restart())
		w.dies(s)
		require.Equal(t, withoutRevision(left(id, int64(s.lease), 1, true)), withoutRevision(f.news()))
	}
}

// A watch whose place in the past was compacted away is over. What happened meanwhile is told after
// the next one is open, in no certain order.
func TestWhatHappenedBetweenTwoWatchesIsTold(t *testing.T) {
	t.Parallel()
	etcd := testetcd.New(t, testetcd.FastTicks) // it is compacted
	w := newWorld(t, etcd)
	proxy := faultproxy.Before(t, etcd.Endpoints()[0])
	client := etcd.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{proxy.Endpoint()} })
	w.arrives("stays")
	goes, quits, again := w.arrives("goes"), w.arrives("quits"), w.arrives("again")
	f := w.follow(client, nil)
	proxy.Down()
	w.dies(goes)
	w.stops(quits) // its word is not heard any more, so this is taken for a crash
	w.dies(again)
	w.arrives("again")
	w.arrives("comes")
	revision := w.dies(w.arrives("comes and goes"))
	_, err := w.plain.Compact(within(t, patience), revision)
	require.NoError(t, err)
	proxy.Heal()
	require.Equal(t, "rebuilt", f.next())
	var told []string
	for range 5 {
		told = append(told, withoutRevision(f.next()))
	}
	want := []string{"joined again", "joined comes"}
	for _, s := range []stranger{goes, quits, again} {
		want = append(want, withoutRevision(left(s.id, int64(s.lease), 1, true)))
	}
	require.ElementsMatch(t, want, told)
	w.arrives("last")
	require.Equal(t, "joined last", f.next())
}

// Between two watches nobody can tell in which revision a registration vanished.
func withoutRevision(told string) string {
	before, rest, _ := strings.Cut(told, " in ")
	_, after, _ := strings.Cut(rest, ",")
	return before + after
}

// The next epoch goes on where the former one has stopped to look.
func TestOneFollowTellsWhatTheFormerOneMissed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testetcd.Shared(t))
	known := &peers.Known{}
	f := w.follow(w.plain, known)
	b := w.arrives("b")
	require.Equal(t, "joined b", f.next())
	f.stop()
	w.dies(b)
	w.arrives("c")
	next := w.follow(w.plain, known)
	told := []string{withoutRevision(next.next()), withoutRevision(next.next())}
	require.ElementsMatch(t, []string{"joined c", withoutRevision(left("b", int64(b.lease), 1, true))}, told)
}

func TestFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testetcd.Shared(t))
	f := w.follow(w.plain, nil)
	f.stop()
	w.arrives("b")
	require.Empty(t, f.told)
}
