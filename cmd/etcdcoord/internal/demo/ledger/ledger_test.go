package ledger_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/ledger"
	"github.com/andresayac/botmesh-etcd/fencing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type rig struct {
	journal *journal.Journal
	store   *ledger.Store
	client  *ledger.Client
	url     string
}

func newRig(t *testing.T, fences ledger.Fences, before func(ledger.Call)) *rig {
	t.Helper()
	r := &rig{journal: journal.New()}
	r.store = ledger.NewStore(r.journal, fences, "secret")
	r.store.BeforeWrite = before
	server := httptest.NewServer(r.store.Handler())
	t.Cleanup(server.Close)
	r.url = server.URL
	r.client = ledger.NewClient(server.URL, "secret")
	t.Cleanup(r.client.Close)
	return r
}

func (r *rig) kinds() (kinds []journal.Kind) {
	for _, e := range r.journal.Entries() {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func call(replica string, update, fence int64) ledger.Call {
	return ledger.Call{Replica: replica, Attempt: update, Update: update, Chat: "7", Fence: fence}
}

func TestWhatIsWrittenIsReadByTheNext(t *testing.T) {
	t.Parallel()
	r := newRig(t, &fencing.Watermark{}, nil)
	ctx := t.Context()
	view, err := r.client.Begin(ctx, call("r1", 1, 10))
	require.NoError(t, err)
	require.Zero(t, view.Version)
	require.Empty(t, view.Updates)
	require.NoError(t, r.client.Write(ctx, call("r1", 1, 10), []int64{1}))
	view, err = r.client.Begin(ctx, call("r2", 2, 11))
	require.NoError(t, err)
	require.Equal(t, ledger.View{Version: 1, Updates: []int64{1}}, view)
	require.NoError(t, r.client.Already(ctx, call("r2", 1, 11)))
	require.NoError(t, r.client.GaveUp(ctx, call("r2", 2, 11)))
	require.NoError(t, r.client.Beat(ctx, ledger.Call{Replica: "r2", Chat: "cron", Fence: 3}))
	require.Equal(t, []journal.Kind{journal.Begin, journal.Wrote, journal.Begin, journal.Already, journal.GaveUp, journal.Beat}, r.kinds())
	require.Equal(t, map[string][]int64{"7": {1}}, r.store.Ledgers())
	wrote := r.journal.Entries()[1]
	require.Equal(t, journal.Entry{
		At: wrote.At, Kind: journal.Wrote, Replica: "r1", Update: 1, Chat: "7", Attempt: 1, Fence: 10, Version: 1,
	}, wrote)
}

func TestAStaleFenceIsRefusedAtBothEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, &fencing.Watermark{}, nil)
	ctx := t.Context()
	_, err := r.client.Begin(ctx, call("r1", 1, 10))
	require.NoError(t, err)
	_, err = r.client.Begin(ctx, call("r2", 2, 11)) // has only read so far: that is enough
	require.NoError(t, err)
	require.ErrorIs(t, r.client.Write(ctx, call("r1", 1, 10), []int64{1}), fencing.ErrStaleToken)
	_, err = r.client.Begin(ctx, call("r1", 3, 10))
	require.ErrorIs(t, err, fencing.ErrStaleToken)
	require.NoError(t, r.client.Beat(ctx, ledger.Call{Chat: "cron", Fence: 5}))
	require.ErrorIs(t, r.client.Beat(ctx, ledger.Call{Chat: "cron", Fence: 4}), fencing.ErrStaleToken)
	require.Equal(t, []journal.Kind{
		journal.Begin, journal.Begin, journal.WriteRefused, journal.BeginRefused, journal.Beat, journal.BeatRefused,
	}, r.kinds())
	require.Empty(t, r.store.Ledgers()["7"])
}

func TestWithoutFencesTheLastWriterWins(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	ctx := t.Context()
	require.NoError(t, r.client.Write(ctx, call("r1", 1, 0), []int64{1}))
	require.NoError(t, r.client.Write(ctx, call("r2", 2, 0), []int64{2}))
	require.Equal(t, map[string][]int64{"7": {2}}, r.store.Ledgers())
}

func TestAnUpdateWithoutChatIsEnteredOnceAndNeedsNoFence(t *testing.T) {
	t.Parallel()
	r := newRig(t, &fencing.Watermark{}, nil)
	for _, u := range []int64{1, 2, 1} {
		c := ledger.Call{Replica: "r1", Update: u}
		_, err := r.client.Begin(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, r.client.Write(t.Context(), c, nil))
	}
	require.Equal(t, []int64{1, 2}, r.store.Ledgers()[""])
	require.Equal(t, journal.Already, r.kinds()[5])
}

// The freeze in the middle of a write rests on this.
func TestAWriteIsNotThereBeforeBeforeWriteReturns(t *testing.T) {
	t.Parallel()
	announced, letGo := make(chan ledger.Call), make(chan struct{})
	r := newRig(t, &fencing.Watermark{}, func(c ledger.Call) {
		if c.Replica == "r1" {
			announced <- c
			<-letGo
		}
	})
	done := make(chan error, 1)
	go func() { done <- r.client.Write(context.Background(), call("r1", 1, 10), []int64{1}) }()
	require.Equal(t, call("r1", 1, 10), <-announced)
	require.NoError(t, r.client.Write(t.Context(), call("r2", 2, 11), []int64{2}))
	close(letGo)
	require.ErrorIs(t, <-done, fencing.ErrStaleToken)
	require.Equal(t, []int64{2}, r.store.Ledgers()["7"])
}

func TestAWriterThatDiesBeforeTheBodyWritesNothing(t *testing.T) {
	t.Parallel()
	announced, letGo := make(chan struct{}), make(chan struct{})
	returned := make(chan struct{})
	r := newRig(t, &fencing.Watermark{}, func(ledger.Call) {
		defer close(returned)
		close(announced)
		<-letGo
	})
	ctx, die := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.client.Write(ctx, call("r1", 1, 10), []int64{1}) }()
	<-announced
	die()
	require.ErrorIs(t, <-done, context.Canceled)
	close(letGo)
	<-returned
	require.Never(t, func() bool { return len(r.kinds()) > 0 }, 50*time.Millisecond, 5*time.Millisecond)
}

func TestWhoDoesNotKnowTheSecretIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, nil)
	stranger := ledger.NewClient(r.url, "guess")
	t.Cleanup(stranger.Close)
	_, err := stranger.Begin(t.Context(), call("r1", 1, 1))
	require.ErrorContains(t, err, http.StatusText(http.StatusForbidden))
	require.ErrorContains(t, stranger.Write(t.Context(), call("r1", 1, 1), nil), http.StatusText(http.StatusForbidden))
	require.Empty(t, r.kinds())
}
