package judge_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
)

func TestTwoHandlingsAtATimeOverlap(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1, 2).ack("r1", "a", 1).ack("r2", "a", 2).
		begin("r1", "a", 1, 10).begin("r2", "a", 2, 11).wroteOver("r1", "a", 1, 11, 0).wroteOver("r2", "a", 2, 11, 1).judge()
	requireOnly(t, v, 0, 0, 0, 1, 0)
}

func TestARefusedWriteOfAReplicaThatRanOverlaps(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1, 2).ack("r1", "a", 1).ack("r2", "a", 2).
		begin("r1", "a", 1, 10).handle("r2", "a", 2, 11).refused("r1", "a", 1, 10).judge()
	requireOnly(t, v, 1, 0, 0, 1, 0) // the turn was given away while its holder ran, and the update is gone
	require.Equal(t, 1, v.StaleWritesOffered)
}

func TestARefusedWriteOfAFrozenReplicaIsNoOverlap(t *testing.T) {
	t.Parallel()
	s := newStory().sent("a", 1, 2).ack("r1", "a", 1).ack("r2", "a", 2).
		begin("r1", "a", 1, 10).fault(journal.Frozen, "r1").pass(ttl).handle("r2", "a", 2, 11).
		fault(journal.Woken, "r1").refused("r1", "a", 1, 10)
	v := s.judge()
	requireOnly(t, v, 0, 0, 0, 0, 0)
	require.Equal(t, 1, v.StaleWritesOffered)
	require.Equal(t, 1, v.Skipped)
}

func TestAnAcceptedWriteOfAFrozenReplicaOverlapsAndIsStale(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1, 2).ack("r1", "a", 1).ack("r2", "a", 2).
		begin("r1", "a", 1, 10).fault(journal.Frozen, "r1").pass(ttl).handle("r2", "a", 2, 11).
		fault(journal.Woken, "r1").wroteOver("r1", "a", 1, 10, 0).judge()
	requireOnly(t, v, 1, 0, 1, 1, 1) // it wiped out update 2, and came after it
	require.Equal(t, 1, v.StaleWritesOffered)
}

func TestARivalThatBeganBeforeTheFreezeOverlaps(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1, 2).ack("r1", "a", 1).ack("r2", "a", 2).
		begin("r1", "a", 1, 10).begin("r2", "a", 2, 11).fault(journal.Frozen, "r1").pass(ttl).wrote("r2", "a", 2, 11).
		fault(journal.Woken, "r1").refused("r1", "a", 1, 10).judge()
	requireOnly(t, v, 0, 0, 0, 1, 0)
}

func TestAWriteFromAnOldCopyIsStaleAndWhatItWipesOutIsLost(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1, 2).ack("r1", "a", 1, 2).
		begin("r1", "a", 1, 0).begin("r1", "a", 2, 0).wroteOver("r1", "a", 1, 0, 0).wroteOver("r1", "a", 2, 0, 0).judge()
	requireOnly(t, v, 1, 0, 0, 1, 1)
	require.Contains(t, strings.Join(v.Findings, "\n"), "update 1 of chat a: its write was wiped out")
}

func TestAReadWithANewerFenceMakesOlderWritesStale(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1, 2).ack("r1", "a", 1).ack("r2", "a", 2).
		begin("r1", "a", 1, 10).fault(journal.Frozen, "r1").pass(ttl).begin("r2", "a", 2, 11).
		fault(journal.Woken, "r1").wrote("r1", "a", 1, 10).fault(journal.Killed, "r2").judge()
	requireOnly(t, v, 0, 0, 0, 0, 1)
}

func beat(replica string, fence int64) journal.Entry {
	return journal.Entry{Kind: journal.Beat, Replica: replica, Fence: fence, Chat: "demo-cron"}
}

func TestALeaderThatComesBackAfterItsSuccessorOverlaps(t *testing.T) {
	t.Parallel()
	good := func() *story { return newStory().sent("a", 1).ack("r1", "a", 1).handle("r1", "a", 1, 10) }
	requireOnly(t, good().add(beat("r1", 5)).add(beat("r1", 5)).add(beat("r2", 7)).add(beat("r1", 9)).judge(), 0, 0, 0, 0, 0)
	requireOnly(t, good().add(beat("r1", 5)).add(beat("r2", 7)).add(beat("r1", 5)).judge(), 0, 0, 0, 1, 1)
	requireOnly(t, good().add(beat("r1", 0)).add(beat("r2", 0)).add(beat("r1", 0)).judge(), 0, 0, 0, 1, 0)
	v := good().add(beat("r1", 5)).add(beat("r2", 7)).
		add(journal.Entry{Kind: journal.BeatRefused, Replica: "r1", Fence: 5, Chat: "demo-cron"}).judge()
	requireOnly(t, v, 0, 0, 0, 0, 0)
	require.Equal(t, 1, v.StaleWritesOffered)
}
