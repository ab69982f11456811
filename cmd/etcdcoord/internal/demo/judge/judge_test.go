package judge_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/judge"
)

const ttl = 5 * time.Second

// story is a journal under construction. Every step takes 10 ms.
type story struct {
	entries  []journal.Entry
	ledgers  map[string][]int64
	versions map[string]int64
	attempts int64
	acked    map[int64]int64 // update -> attempt
	at       time.Duration
}

func newStory() *story {
	return &story{ledgers: map[string][]int64{}, versions: map[string]int64{}, acked: map[int64]int64{}}
}

func (s *story) add(e journal.Entry) *story {
	s.at += 10 * time.Millisecond
	e.At = s.at
	s.entries = append(s.entries, e)
	return s
}

func (s *story) pass(d time.Duration) *story { s.at += d; return s }

func (s *story) sent(chat string, updates ...int64) *story {
	for _, u := range updates {
		s.add(journal.Entry{Kind: journal.Sent, Update: u, Chat: chat})
	}
	return s
}

func (s *story) ack(replica, chat string, updates ...int64) *story {
	for _, u := range updates {
		s.attempts++
		s.acked[u] = s.attempts
		s.add(journal.Entry{Kind: journal.Acked, Update: u, Chat: chat, Replica: replica, Attempt: s.attempts})
	}
	return s
}

func (s *story) begin(replica, chat string, update, fence int64) *story {
	return s.add(journal.Entry{
		Kind: journal.Begin, Update: update, Chat: chat, Replica: replica, Attempt: s.acked[update],
		Fence: fence, Version: s.versions[chat],
	})
}

func (s *story) wrote(replica, chat string, update, fence int64) *story {
	return s.wroteOver(replica, chat, update, fence, s.versions[chat])
}

func (s *story) wroteOver(replica, chat string, update, fence, base int64) *story {
	s.versions[chat]++
	if base < s.versions[chat]-1 {
		s.ledgers[chat] = slices.Clone(s.ledgers[chat][:base])
	}
	s.ledgers[chat] = append(s.ledgers[chat], update)
	return s.add(journal.Entry{
		Kind: journal.Wrote, Update: update, Chat: chat, Replica: replica, Attempt: s.acked[update],
		Fence: fence, Base: base, Version: s.versions[chat],
	})
}

func (s *story) handle(replica, chat string, update, fence int64) *story {
	return s.begin(replica, chat, update, fence).wrote(replica, chat, update, fence)
}

func (s *story) refused(replica, chat string, update, fence int64) *story {
	return s.add(journal.Entry{
		Kind: journal.WriteRefused, Update: update, Chat: chat, Replica: replica, Attempt: s.acked[update], Fence: fence,
	})
}

func (s *story) fault(kind journal.Kind, replica string) *story {
	return s.add(journal.Entry{Kind: kind, Replica: replica})
}

func (s *story) judge() *judge.Verdict {
	return judge.Judge(s.entries, judge.Case{TTL: ttl, Ledgers: s.ledgers})
}

// requireOnly checks the violations in the order lost, duplicates, out of order, overlaps, stale accepted.
func requireOnly(t *testing.T, v *judge.Verdict, lost, duplicates, outOfOrder, overlaps, stale int) {
	t.Helper()
	require.Equal(t, [5]int{lost, duplicates, outOfOrder, overlaps, stale},
		[5]int{v.Lost, v.Duplicates, v.OutOfOrder, v.Overlaps, v.StaleWritesAccepted}, "%+v", v)
	require.Equal(t, v.Violations() == 0, v.OK)
	require.Equal(t, v.Violations() == 0, len(v.Findings) == 0)
	require.Equal(t, v.Sent, v.Handled+v.Skipped+v.Lost)
}

func TestAGoodRunIsOK(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1, 2).sent("", 3).sent("b", 4).
		ack("r1", "a", 1).ack("r2", "a", 2).ack("r1", "", 3).ack("r2", "b", 4).
		begin("r1", "a", 1, 10).handle("r2", "b", 4, 11). // chats may overlap each other
		wrote("r1", "a", 1, 10).handle("r1", "", 3, 0).handle("r2", "a", 2, 12).judge()
	requireOnly(t, v, 0, 0, 0, 0, 0)
	require.Equal(t, 4, v.Sent)
	require.Equal(t, 4, v.Handled)
}

func TestNothingAtAllIsNotOK(t *testing.T) {
	t.Parallel()
	require.False(t, newStory().judge().OK)
}

func TestAnUpdateThatAnInnocentReplicaDroppedIsLost(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1).ack("r1", "a", 1).begin("r1", "a", 1, 10).
		fault(journal.Killed, "r2").fault(journal.Terminated, "r1"). // a graceful stop excuses nothing
		add(journal.Entry{Kind: journal.GaveUp, Replica: "r1", Update: 1, Chat: "a"}).judge()
	requireOnly(t, v, 1, 0, 0, 0, 0)
	require.Contains(t, v.Findings[0], "r1 acknowledged it")
}

func TestAnUpdateThatNobodyTookIsLostUnlessTheUserEndedTheRun(t *testing.T) {
	t.Parallel()
	s := newStory().sent("a", 1, 2).ack("r1", "a", 1).handle("r1", "a", 1, 10)
	requireOnly(t, s.judge(), 1, 0, 0, 0, 0)
	v := judge.Judge(s.entries, judge.Case{TTL: ttl, Ledgers: s.ledgers, Interrupted: true})
	requireOnly(t, v, 0, 0, 0, 0, 0)
	require.Equal(t, 1, v.Sent)
}

func TestWhatAKilledReplicaHadIsSkipped(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1, 2, 3).ack("r1", "a", 1, 2).ack("r2", "a", 3).
		begin("r1", "a", 1, 10).fault(journal.Killed, "r1").handle("r2", "a", 3, 12).judge()
	requireOnly(t, v, 0, 0, 0, 0, 0)
	require.Equal(t, 2, v.Skipped)
	require.Equal(t, 1, v.ReplicasKilled)
}

func TestTheNextIncarnationOfAKilledReplicaHasNoExcuse(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1).fault(journal.Killed, "r1#1").ack("r1#2", "a", 1).judge()
	requireOnly(t, v, 1, 0, 0, 0, 0)
}

func TestAFreezeExcusesOnlyWhatWasAcknowledgedBeforeAndOnlyPastTheTTL(t *testing.T) {
	t.Parallel()
	frozenFor := func(d time.Duration) *story {
		return newStory().sent("a", 1).ack("r1", "a", 1).fault(journal.Frozen, "r1").pass(d).fault(journal.Woken, "r1")
	}
	v := frozenFor(ttl).judge()
	requireOnly(t, v, 0, 0, 0, 0, 0)
	require.Equal(t, 1, v.Skipped)
	requireOnly(t, frozenFor(ttl-20*time.Millisecond).judge(), 1, 0, 0, 0, 0)

	v = frozenFor(ttl).sent("a", 2).ack("r1", "a", 2).judge() // taken after it woke up
	requireOnly(t, v, 1, 0, 0, 0, 0)
	require.Equal(t, 1, v.Skipped)
}

func TestASecondHandlingIsADuplicate(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1).ack("r1", "a", 1).handle("r1", "a", 1, 10).handle("r1", "a", 1, 11).judge()
	requireOnly(t, v, 0, 1, 0, 0, 0)
}

func TestTwoAcknowledgedPostsAreADuplicateEvenIfTheLedgerCaughtIt(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1).ack("r1", "a", 1).handle("r1", "a", 1, 10).
		ack("r2", "a", 1).begin("r2", "a", 1, 11).add(journal.Entry{Kind: journal.Already, Update: 1, Chat: "a", Replica: "r2"}).judge()
	requireOnly(t, v, 0, 1, 0, 0, 0)
}

func TestAnAbandonedPostThatTheLedgerCaughtIsFine(t *testing.T) {
	t.Parallel()
	s := newStory().sent("a", 1).
		add(journal.Entry{Kind: journal.Unacked, Update: 1, Chat: "a", Replica: "r1", Attempt: 70}).
		add(journal.Entry{Kind: journal.Begin, Update: 1, Chat: "a", Replica: "r1", Attempt: 70, Fence: 9}).
		ack("r2", "a", 1)
	s.acked[1] = 70
	s.wrote("r1", "a", 1, 9)
	s.acked[1] = s.attempts
	v := s.begin("r2", "a", 1, 11).add(journal.Entry{Kind: journal.Already, Update: 1, Chat: "a", Replica: "r2"}).judge()
	requireOnly(t, v, 0, 0, 0, 0, 0)
	require.Equal(t, 1, v.Handled)
}

func TestAnEarlierUpdateHandledLaterIsOutOfOrder(t *testing.T) {
	t.Parallel()
	sent := func() *story { return newStory().sent("a", 5, 3, 9).ack("r1", "a", 5, 3, 9) }
	// The order of sending counts, not that of ids.
	v := sent().handle("r1", "a", 5, 10).handle("r1", "a", 3, 11).handle("r1", "a", 9, 12).judge()
	requireOnly(t, v, 0, 0, 0, 0, 0)
	v = sent().handle("r1", "a", 5, 10).handle("r1", "a", 9, 11).handle("r1", "a", 3, 12).judge()
	requireOnly(t, v, 0, 0, 1, 0, 0)
	require.Contains(t, v.Findings[0], "update 3 was handled after update 9")
	// Chats are independent, and what has no chat has no order.
	v = newStory().sent("a", 1).sent("b", 2).sent("", 3, 4).ack("r1", "a", 1).ack("r1", "b", 2).ack("r1", "", 3, 4).
		handle("r1", "", 4, 0).handle("r1", "b", 2, 10).handle("r1", "a", 1, 11).handle("r1", "", 3, 0).judge()
	requireOnly(t, v, 0, 0, 0, 0, 0)
}

func TestBothTheBeginsAndTheWritesMustBeInOrder(t *testing.T) {
	t.Parallel()
	two := func() *story { return newStory().sent("a", 1, 2).ack("r1", "a", 1).ack("r2", "a", 2) }
	v := two().begin("r2", "a", 2, 10).begin("r1", "a", 1, 10).wrote("r1", "a", 1, 10).wrote("r2", "a", 2, 10).judge()
	requireOnly(t, v, 0, 0, 1, 1, 0)
	v = two().begin("r1", "a", 1, 10).begin("r2", "a", 2, 10).wrote("r2", "a", 2, 10).wrote("r1", "a", 1, 10).judge()
	requireOnly(t, v, 0, 0, 1, 1, 0)
}

func TestASkippedUpdateLeavesNoHoleInTheOrder(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1, 2).ack("r1", "a", 1).ack("r2", "a", 2).begin("r1", "a", 1, 10).
		fault(journal.Killed, "r1").handle("r2", "a", 2, 11).judge()
	requireOnly(t, v, 0, 0, 0, 0, 0)
}

func TestTheStallIsTheLongestTimeWithoutProgressOfAChatThatHadWork(t *testing.T) {
	t.Parallel()
	v := newStory().sent("a", 1, 2).ack("r1", "a", 1).pass(time.Second).handle("r1", "a", 1, 10).
		pass(time.Hour). // nothing waits
		ack("r2", "a", 2).pass(3*time.Second).handle("r2", "a", 2, 11).judge()
	require.EqualValues(t, 3010, v.MaxStallMS)
	// Somebody waits behind a dead one.
	v = newStory().sent("a", 1, 2).ack("r1", "a", 1).ack("r2", "a", 2).begin("r1", "a", 1, 10).fault(journal.Killed, "r1").
		pass(ttl).handle("r2", "a", 2, 11).judge()
	require.EqualValues(t, 5020, v.MaxStallMS)
	// Nobody does: what died with its replica does not wait any more.
	v = newStory().sent("a", 1, 2).ack("r1", "a", 1).begin("r1", "a", 1, 10).pass(time.Second).fault(journal.Frozen, "r1").
		pass(ttl).fault(journal.Woken, "r1").ack("r2", "a", 2).handle("r2", "a", 2, 11).judge()
	require.EqualValues(t, 1010, v.MaxStallMS)
}

func TestTheFindingsOfAKindAreCutShortAndCounted(t *testing.T) {
	t.Parallel()
	s := newStory()
	for u := range int64(40) {
		s.sent("a", u).ack("r1", "a", u)
	}
	v := s.judge()
	require.Equal(t, 40, v.Lost)
	require.Len(t, v.Findings, 6)
	require.Equal(t, "lost: and 35 more", v.Findings[5])
}

func TestTheJSONHasExactlyTheDocumentedFields(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(newStory().judge())
	require.NoError(t, err)
	require.Equal(t, `{"ok":false,"sent":0,"handled":0,"skipped":0,"lost":0,"duplicates":0,"out_of_order":0,`+
		`"overlaps":0,"stale_writes_offered":0,"stale_writes_accepted":0,"max_stall_ms":0,"replicas_killed":0,`+
		`"replicas_frozen":0,"replicas_rolled":0,"elapsed_ms":0}`, string(text))
}
