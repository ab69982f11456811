package journal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
)

func TestOpenFollowsAnUpdateFromSentToHandled(t *testing.T) {
	t.Parallel()
	j := journal.New()
	open := journal.NewOpen(j)
	step := func(kind journal.Kind, replica string, update int64) {
		j.Add(journal.Entry{Kind: kind, Replica: replica, Update: update, Chat: "a"})
	}
	inFlight := func() int { c, _ := open.Counts(); return c.InFlight() }
	step(journal.Ready, "r1", 0)
	step(journal.Ready, "r2", 0)
	step(journal.Sent, "", 1)
	step(journal.Sent, "", 2)
	require.Equal(t, 2, inFlight())
	require.False(t, open.SharedWith("a", "r1"), "nobody has acknowledged anything")
	step(journal.Acked, "r1", 1)
	step(journal.Acked, "r2", 2)
	require.True(t, open.SharedWith("a", "r1"))
	require.False(t, open.SharedWith("b", "r1"))
	step(journal.Begin, "r1", 1)
	require.Equal(t, journal.Load{Open: 1, Holding: 1}, open.LoadOf("r1"))
	step(journal.Wrote, "r1", 1)
	require.Equal(t, journal.Load{Handled: 1}, open.LoadOf("r1"))
	require.False(t, open.SharedWith("a", "r2"))
	require.Equal(t, 1, inFlight())
	step(journal.Killed, "r2", 0)
	require.False(t, open.SharedWith("a", "r1"), "a dead replica is no rival")
	step(journal.Exited, "r2", 0)
	require.Zero(t, inFlight())
	c, _ := open.Counts()
	require.Equal(t, 1, c.Dropped)
}

func TestAWriteBeforeTheAcknowledgementIsReadCountsOnce(t *testing.T) {
	t.Parallel()
	j := journal.New()
	open := journal.NewOpen(j)
	for _, kind := range []journal.Kind{journal.Sent, journal.Begin, journal.Wrote, journal.Acked, journal.Already, journal.GaveUp, journal.Exited} {
		j.Add(journal.Entry{Kind: kind, Replica: "r1", Update: 1, Chat: "a"})
	}
	require.Equal(t, journal.Load{Handled: 1}, open.LoadOf("r1"))
	c, _ := open.Counts()
	require.Equal(t, [4]int{1, 1, 1, 0}, [4]int{c.Sent, c.Acked, c.Handled, c.Dropped})
}

func TestAHeartbeatIsNoProgress(t *testing.T) {
	t.Parallel()
	j := journal.New()
	open := journal.NewOpen(j)
	j.Add(journal.Entry{Kind: journal.Sent, Update: 1, Chat: "a"})
	before, _ := open.Counts()
	j.Add(journal.Entry{Kind: journal.Beat, Replica: "r1", Chat: "demo-cron"})
	after, _ := open.Counts()
	require.Equal(t, before.Progress, after.Progress)
	require.Equal(t, "r1", after.Leader)
}

func TestEntriesAreInTheOrderOfTheirTimes(t *testing.T) {
	t.Parallel()
	j := journal.New()
	done := make(chan struct{})
	for range 4 {
		go func() {
			for range 500 {
				j.Add(journal.Entry{Kind: journal.Remark})
			}
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}
	entries := j.Entries()
	require.Len(t, entries, 2000)
	for i := 1; i < len(entries); i++ {
		require.LessOrEqual(t, entries[i-1].At, entries[i].At)
	}
}
