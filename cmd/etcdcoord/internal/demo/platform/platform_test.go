package platform_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/platform"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/replica"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/telegram"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// atOnce lets everything out.
type atOnce struct{}

func (atOnce) Wait(ctx context.Context, _ string) bool { return ctx.Err() == nil }

// given is a source.
type given []telegram.Update

func (g *given) Next() (telegram.Update, error) {
	if len(*g) == 0 {
		return telegram.Update{}, io.EOF
	}
	u := (*g)[0]
	*g = (*g)[1:]
	return u, nil
}

func updates(t *testing.T, n, chats int) *given {
	t.Helper()
	var g given
	for i := range n {
		u, err := telegram.Parse(fmt.Appendf(nil, `{"update_id":%d,"message":{"chat":{"id":%d}}}`, i, i%chats+1))
		require.NoError(t, err)
		g = append(g, u)
	}
	return &g
}

// hook is a replica that does what it is told.
func hook(t *testing.T, answer func(u telegram.Update, r *http.Request) int) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the platform gave up
		}
		u, err := telegram.Parse(body)
		if err != nil || r.Header.Get(replica.SecretHeader) != "secret" {
			t.Errorf("post %q with secret %q: %v", body, r.Header.Get(replica.SecretHeader), err)
		}
		w.WriteHeader(answer(u, r))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func run(t *testing.T, source platform.Source, urls ...string) []journal.Entry {
	t.Helper()
	var targets []platform.Target
	for i, url := range urls {
		targets = append(targets, platform.Target{Replica: "r" + strconv.Itoa(i), URL: url})
	}
	j := journal.New()
	p := platform.New(j, func() []platform.Target { return targets }, "secret", atOnce{})
	require.NoError(t, p.Run(t.Context(), source))
	return j.Entries()
}

func TestOneUnansweredPostPerChatAndTheOrderIsKept(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	last, busy := map[string]int64{}, map[string]bool{}
	perReplica := [3]int{}
	var most, now int
	var urls []string
	for i := range perReplica {
		urls = append(urls, hook(t, func(u telegram.Update, _ *http.Request) int {
			mu.Lock()
			if busy[u.Chat] {
				t.Errorf("two posts of chat %s at a time", u.Chat)
			}
			if u.ID <= last[u.Chat] && last[u.Chat] != 0 {
				t.Errorf("chat %s: %d after %d", u.Chat, u.ID, last[u.Chat])
			}
			busy[u.Chat], last[u.Chat] = true, u.ID
			perReplica[i]++
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Millisecond) // an answer takes time: the next post would come in it
			mu.Lock()
			busy[u.Chat] = false
			now--
			mu.Unlock()
			return http.StatusOK
		}))
	}
	entries := run(t, updates(t, 200, 5), urls...)
	require.Greater(t, most, 1, "chats do not wait for each other")
	for _, n := range perReplica {
		require.InDelta(t, 200/3, n, 1, "round robin")
	}
	acked := 0
	for _, e := range entries {
		if e.Kind == journal.Acked {
			acked++
		}
	}
	require.Equal(t, 200, acked)
}

func TestWhatOneReplicaRefusesGoesToTheNext(t *testing.T) {
	t.Parallel()
	refusing := hook(t, func(telegram.Update, *http.Request) int { return http.StatusServiceUnavailable })
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	taking := hook(t, func(telegram.Update, *http.Request) int { return http.StatusOK })
	entries := run(t, updates(t, 20, 3), refusing, gone.URL, taking)
	attempts := map[int64]bool{}
	acked := map[int64]string{}
	for _, e := range entries {
		if e.Kind == journal.Sent {
			continue
		}
		require.False(t, attempts[e.Attempt], "attempt numbers are unique")
		attempts[e.Attempt] = true
		if e.Kind == journal.Acked {
			acked[e.Update] = e.Replica
		} else {
			require.NotEqual(t, "r2", e.Replica)
			require.NotEmpty(t, e.Note)
		}
	}
	require.Len(t, acked, 20)
	for _, r := range acked {
		require.Equal(t, "r2", r)
	}
}

func TestASilentReplicaIsGivenUpOnAndThenAvoided(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	silent := 0
	frozen := hook(t, func(_ telegram.Update, r *http.Request) int {
		mu.Lock()
		silent++
		mu.Unlock()
		nanos, err := strconv.ParseInt(r.Header.Get(replica.DeadlineHeader), 10, 64)
		if err != nil || time.Until(time.Unix(0, nanos)) <= 0 {
			t.Errorf("the post must carry a deadline that is yet to come, not %q", r.Header.Get(replica.DeadlineHeader))
		}
		<-r.Context().Done() // the platform has hung up
		if time.Since(time.Unix(0, nanos)) < 500*time.Millisecond {
			t.Error("the platform must wait well beyond the deadline it sent")
		}
		return http.StatusOK
	})
	taking := hook(t, func(telegram.Update, *http.Request) int { return http.StatusOK })
	entries := run(t, updates(t, 30, 1), frozen, taking)
	unacked := 0
	for _, e := range entries {
		if e.Kind == journal.Unacked {
			unacked++
		}
	}
	require.Equal(t, 1, unacked, "one post found out; the other 29 went elsewhere")
	require.Equal(t, 1, silent)
}

func TestWhenTheRunEndsEveryPostHasAnOutcome(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	inHand := make(chan struct{}, 1)
	answer := make(chan struct{})
	url := hook(t, func(telegram.Update, *http.Request) int {
		inHand <- struct{}{}
		<-answer
		return http.StatusOK
	})
	j := journal.New()
	p := platform.New(j, func() []platform.Target { return []platform.Target{{Replica: "r0", URL: url}} }, "secret", atOnce{})
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, updates(t, 10, 1)) }()
	<-inHand
	stop()
	close(answer)
	require.NoError(t, <-done)
	entries := j.Entries()
	last := entries[len(entries)-1]
	require.Equal(t, journal.Acked, last.Kind, "the 2xx of the post under way counts")
	for _, e := range entries[:len(entries)-1] {
		require.Equal(t, journal.Sent, e.Kind, "no post was begun after the end")
	}
}
