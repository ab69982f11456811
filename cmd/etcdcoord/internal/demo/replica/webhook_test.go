package replica

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/ledger"
	"github.com/andresayac/botmesh-etcd/fencing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// staged is a coordinator that the test plays.
type staged struct {
	none
	reserve func(ctx context.Context) error
	acquire func(t *stagedTurn) error

	mu        sync.Mutex
	reserved  int
	cancelled int
	fence     int64
	released  []int64
}

type stagedTurn struct {
	freeTurn
	s     *staged
	fence int64
	ctx   context.Context
	lose  context.CancelCauseFunc
	held  error // what AssertHeld says while the context has not ended
}

func (s *staged) Reserve(ctx context.Context, _ string) (ticket, error) {
	if s.reserve != nil {
		if err := s.reserve(ctx); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved++
	s.fence++
	t := &stagedTurn{s: s, fence: s.fence}
	t.ctx, t.lose = context.WithCancelCause(context.Background())
	return t, nil
}

func (t *stagedTurn) Acquire(context.Context) (turn, error) {
	if t.s.acquire != nil {
		if err := t.s.acquire(t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *stagedTurn) Cancel(context.Context) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.cancelled++
	return nil
}

func (t *stagedTurn) Fence() fencing.Token     { return fencing.Token(t.fence) }
func (t *stagedTurn) Context() context.Context { return t.ctx }
func (t *stagedTurn) AssertHeld() error {
	if t.held != nil {
		return t.held
	}
	return context.Cause(t.ctx)
}

func (t *stagedTurn) Release(context.Context) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.released = append(t.s.released, t.fence)
	return nil
}

type rig struct {
	bot     *bot
	coord   *staged
	journal *journal.Journal
	url     string
	posts   sync.WaitGroup // the 2xx is out before the handler of the post has ended
}

func newRig(t *testing.T, coord *staged, before func(ledger.Call)) *rig {
	t.Helper()
	r := &rig{coord: coord, journal: journal.New()}
	store := ledger.NewStore(r.journal, &fencing.Watermark{}, "s")
	store.BeforeWrite = before
	storeServer := httptest.NewServer(store.Handler())
	t.Cleanup(storeServer.Close)
	client := ledger.NewClient(storeServer.URL, "s")
	t.Cleanup(client.Close)
	r.bot = &bot{
		cfg:   Config{Incarnation: "r#1", Secret: "hook", WorkMin: time.Millisecond, WorkMax: 2 * time.Millisecond},
		coord: coord, store: client, talk: &talk{out: io.Discard}, log: slog.New(slog.DiscardHandler),
	}
	handler := r.bot.server().Handler
	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.posts.Add(1)
		defer r.posts.Done()
		handler.ServeHTTP(w, req)
	}))
	t.Cleanup(webhook.Close)
	r.url = webhook.URL + "/webhook"
	return r
}

// post delivers one update and gives the status.
func (r *rig) post(t *testing.T, body string, deadline time.Time) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set(SecretHeader, "hook")
	req.Header.Set(AttemptHeader, "1")
	req.Header.Set(DeadlineHeader, strconv.FormatInt(deadline.UnixNano(), 10))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func (r *rig) kinds() (kinds []journal.Kind) {
	r.posts.Wait()
	r.bot.work.Wait()
	for _, e := range r.journal.Entries() {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

const inChat = `{"update_id":1,"message":{"chat":{"id":7}}}`

func soon() time.Time { return time.Now().Add(time.Minute) }

func TestAnUpdateIsHandledInItsTurnOnceAcknowledged(t *testing.T) {
	t.Parallel()
	r := newRig(t, &staged{}, nil)
	require.Equal(t, http.StatusOK, r.post(t, inChat, soon()))
	require.Equal(t, []journal.Kind{journal.Begin, journal.Wrote}, r.kinds())
	require.Equal(t, []int64{1}, r.coord.released)
	require.EqualValues(t, 1, r.journal.Entries()[1].Fence)
	// The second delivery finds it in the ledger.
	require.Equal(t, http.StatusOK, r.post(t, inChat, soon()))
	require.Equal(t, []journal.Kind{journal.Begin, journal.Wrote, journal.Begin, journal.Already}, r.kinds())
}

func TestWhatHasNoChatTakesNoPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, &staged{}, nil)
	require.Equal(t, http.StatusOK, r.post(t, `{"update_id":1,"inline_query":{"id":"1"}}`, soon()))
	require.Equal(t, []journal.Kind{journal.Begin, journal.Wrote}, r.kinds())
	require.Zero(t, r.coord.reserved)
}

func TestALatePostIsNotReserved(t *testing.T) {
	t.Parallel()
	r := newRig(t, &staged{}, nil)
	require.Equal(t, http.StatusServiceUnavailable, r.post(t, inChat, time.Now().Add(-time.Millisecond)))
	require.Empty(t, r.kinds())
	require.Zero(t, r.coord.reserved)
}

func TestAPostThatBecomesLateWhileReservingGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	// Like a freeze in the middle of Reserve.
	coord := &staged{reserve: func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}}
	r := newRig(t, coord, nil)
	require.Equal(t, http.StatusServiceUnavailable, r.post(t, inChat, time.Now().Add(time.Second)))
	require.Empty(t, r.kinds())
	require.Equal(t, 1, coord.reserved)
	require.Equal(t, 1, coord.cancelled)
}

func TestWithoutAPlaceThereIsNo2xx(t *testing.T) {
	t.Parallel()
	r := newRig(t, &staged{reserve: func(context.Context) error { return fencing.ErrUnavailable }}, nil)
	require.Equal(t, http.StatusServiceUnavailable, r.post(t, inChat, soon()))
	require.Equal(t, http.StatusBadRequest, r.post(t, `{"update_id":`, soon()))
	r.bot.cfg.Secret = "other"
	require.Equal(t, http.StatusForbidden, r.post(t, inChat, soon()))
	require.Empty(t, r.kinds())
}

func TestATicketThatWasPassedOverIsGivenUpAndNotQueuedAgain(t *testing.T) {
	t.Parallel()
	lost := &fencing.LeaseLostError{Key: "7", Reason: fencing.Superseded}
	r := newRig(t, &staged{acquire: func(*stagedTurn) error { return lost }}, nil)
	require.Equal(t, http.StatusOK, r.post(t, inChat, soon()))
	require.Equal(t, []journal.Kind{journal.GaveUp}, r.kinds())
	require.Equal(t, 1, r.coord.reserved)
	require.Contains(t, r.journal.Entries()[0].Note, string(fencing.Superseded))
}

func TestALostTurnEndsTheHandlerBeforeItsWrite(t *testing.T) {
	t.Parallel()
	for _, lose := range []func(*stagedTurn){
		func(t *stagedTurn) { t.lose(errors.New("lost")) },
		func(t *stagedTurn) { t.held = errors.New("lost, and the context does not know yet") },
	} {
		coord := &staged{acquire: func(t *stagedTurn) error {
			lose(t)
			return nil
		}}
		r := newRig(t, coord, nil)
		require.Equal(t, http.StatusOK, r.post(t, inChat, soon()))
		require.NotContains(t, r.kinds(), journal.Wrote)
		require.Contains(t, r.kinds(), journal.GaveUp)
		require.Equal(t, []int64{1}, coord.released)
	}
}

func TestAWriteUnderWayIsNotTakenBackButRefused(t *testing.T) {
	t.Parallel()
	var r *rig
	var turns sync.Map
	coord := &staged{acquire: func(t *stagedTurn) error {
		turns.Store(t.fence, t)
		return nil
	}}
	r = newRig(t, coord, func(c ledger.Call) {
		// In the middle of the write the turn is lost and a rival reads.
		held, _ := turns.Load(c.Fence)
		held.(*stagedTurn).lose(errors.New("lost"))
		rival := c
		rival.Fence++
		_, err := r.bot.store.Begin(context.Background(), rival)
		if err != nil {
			t.Error(err)
		}
	})
	require.Equal(t, http.StatusOK, r.post(t, inChat, soon()))
	require.Equal(t, []journal.Kind{journal.Begin, journal.Begin, journal.WriteRefused, journal.GaveUp}, r.kinds())
	require.Equal(t, []int64{1}, coord.released)
}
