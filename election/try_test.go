package election_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/election"
)

func TestTryLeadWinsWhenNobodyIsThere(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	l, err := a.TryLead(t.Context(), "n")
	require.NoError(t, err)
	require.EqualValues(t, a.campaigns(t, "n"), l.Fence())
	require.Len(t, a.heard(), 1)

	next := b.goLead(t.Context(), "n")
	b.campaigns(t, "n")
	require.NoError(t, l.Resign(t.Context()))
	second := next.wins(t)
	require.Greater(t, second.Fence(), l.Fence())
	require.NoError(t, second.Resign(t.Context()))

	again, err := a.TryLead(t.Context(), "n")
	require.NoError(t, err)
	require.Greater(t, again.Fence(), second.Fence())
}

// mecatl#237: followers that do not lead are no failure, and must cost nothing.
func TestTryLeadThatLosesWritesNothing(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	// Nothing else happens under this prefix, so any event of the prefix is TryLead's.
	changes := a.client.Watch(t.Context(), a.schema.Candidates("n"), clientv3.WithPrefix(), clientv3.WithRev(int64(l.Fence())+1))
	for range 5 {
		_, err = b.TryLead(t.Context(), "n")
		require.ErrorIs(t, err, election.ErrNotElected)
		_, err = a.TryLead(t.Context(), "n")
		require.ErrorIs(t, err, election.ErrNotElected, "a local leader is another one, too")
	}
	require.NoError(t, l.Resign(t.Context()))
	change := <-changes
	require.Equal(t, clientv3.EventTypeDelete, change.Events[0].Type, "the first change is the Resign")
	require.Empty(t, b.heard())
}

func TestTryLeadBesideALocalCampaignIsNotElectedAndWritesNothing(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	p := b.goLead(t.Context(), "n")
	rev := b.campaigns(t, "n")
	began := time.Now()
	_, err = b.TryLead(t.Context(), "n")
	require.ErrorIs(t, err, election.ErrNotElected)
	require.Less(t, time.Since(began), time.Second)
	require.Equal(t, rev, b.campaigns(t, "n"), "the campaign keeps its place")
	require.NoError(t, l.Resign(t.Context()))
	p.wins(t)
}

func TestOfManyTryLeadsAtOnceAtMostOneWins(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	for range 10 {
		results := make(chan *election.Leadership, 8)
		for i := range cap(results) {
			who := a
			if i%2 == 1 {
				who = b
			}
			go func() {
				l, err := who.TryLead(t.Context(), "n")
				if err != nil && !errors.Is(err, election.ErrNotElected) {
					t.Errorf("want ErrNotElected, got %v", err)
				}
				results <- l
			}()
		}
		var won []*election.Leadership
		for range cap(results) {
			if l := <-results; l != nil {
				won = append(won, l)
			}
		}
		require.Len(t, won, 1)
		require.NoError(t, won[0].Resign(t.Context()))
	}
}
