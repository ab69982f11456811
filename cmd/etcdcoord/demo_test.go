package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/faults"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/judge"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

const sample = "internal/demo/testdata/telegram-updates.ndjson"

func verdictOf(t *testing.T, r result) judge.Verdict {
	t.Helper()
	var v judge.Verdict
	decoder := json.NewDecoder(strings.NewReader(r.stdout))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&v), "stdout %q, stderr %s", r.stdout, r.stderr)
	require.False(t, decoder.More(), "nothing but the verdict may stand on stdout: %q", r.stdout)
	return v
}

func requireOK(t *testing.T, r result) judge.Verdict {
	t.Helper()
	v := verdictOf(t, r)
	require.Zero(t, r.code, "stdout %s, stderr %s", r.stdout, r.stderr)
	require.True(t, v.OK)
	require.Equal(t, v.Sent, v.Handled+v.Skipped)
	require.Zero(t, v.Violations())
	return v
}

// The tests that run the whole demo are not parallel: each keeps four processes and an etcd busy,
// and a replica that gets no time to renew its session loses it, by right.

func TestTheDemoOnTheSampleEndsWithOK(t *testing.T) {
	v := requireOK(t, command(t, "", "demo", "--json", "--handler-time=5ms-30ms", "--updates", sample))
	require.Equal(t, 1500, v.Sent)
	require.Equal(t, 1, v.ReplicasKilled)
	if len(faults.Available()) == 3 {
		require.Equal(t, 1, v.ReplicasFrozen)
		require.Equal(t, 1, v.ReplicasRolled)
		require.GreaterOrEqual(t, v.StaleWritesOffered, 1, "the frozen replica woke up in the middle of a write")
	}
	require.Less(t, v.MaxStallMS, int64(10_000), "a chat waits for a dead replica's TTL of 5 s, not much longer")
}

func TestWithoutCoordinatorTheJudgeFindsViolations(t *testing.T) {
	for _, list := range []string{"none", "kill,freeze,roll"} {
		t.Run(list, func(t *testing.T) {
			if list != "none" && len(faults.Available()) < 3 {
				list = string(faults.Kill)
			}
			r := command(t, "", "demo", "--json", "--coordinator=none", "--ttl=2s", "--messages=200", "--faults", list)
			v := verdictOf(t, r)
			require.Equal(t, exitFailure, r.code, r.stderr)
			require.False(t, v.OK)
			require.Positive(t, v.Overlaps)
			require.Positive(t, v.Lost, "two handlers that read the same ledger: one's write is gone")
			require.Positive(t, v.StaleWritesAccepted)
			require.Contains(t, r.stderr, "overlap: ")
		})
	}
}

func TestWhatIsNoUpdateIsReportedWithItsLineAndLeftOut(t *testing.T) {
	input := strings.Join([]string{
		`{"update_id":1,"message":{"chat":{"id":7}}}`,
		`{"update_id":2,"message":{"chat":{"id":7}`,
		`{"update_id":3,"inline_query":{"id":"x"}}`,
		`{"update_id":1,"message":{"chat":{"id":7}}}`,
		``,
		`{"update_id":4,"callback_query":{"id":"x","message":{"chat":{"id":7}}}}`,
	}, "\n")
	r := command(t, input, "demo", "--json", "--faults=none", "--updates=-")
	v := requireOK(t, r)
	require.Equal(t, 3, v.Sent)
	require.Equal(t, 3, v.Handled)
	require.Contains(t, r.stderr, "line 2 left out: malformed")
	require.Contains(t, r.stderr, "line 4 left out: redelivery: update_id 1 came before, on line 1")
}

func TestNothingSentIsNotOK(t *testing.T) {
	r := command(t, "\n", "demo", "--json", "--faults=none", "--updates=-")
	require.Equal(t, exitFailure, r.code)
	require.False(t, verdictOf(t, r).OK)
}

func TestPlainOutputTellsTheStoryWithoutColors(t *testing.T) {
	r := command(t, "", "demo", "--messages=60", "--faults=kill")
	require.Zero(t, r.code, r.stdout)
	require.Contains(t, r.stdout, "SIGKILL")
	require.Contains(t, r.stdout, "\nok: ")
	require.NotContains(t, r.stdout, "\x1b")
	require.Empty(t, r.stderr)
}

// watched is a stdout that can be read while it is written.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func TestAnInterruptEndsEverythingWithAVerdictSoFar(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	word := "SIGSTOP" // the worst moment: one replica is frozen
	if len(faults.Available()) < 3 {
		word = "SIGKILL"
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var stdout, stderr watched
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"demo", "--json", "--messages=200"}, strings.NewReader(""), &stdout, &stderr)
	}()
	require.Eventually(t, func() bool { return strings.Contains(stderr.String(), word) }, time.Minute, 10*time.Millisecond)
	interrupt()
	require.Equal(t, exitInterrupted, <-code, stderr.String())
	v := verdictOf(t, result{stdout: stdout.String(), stderr: stderr.String()})
	require.True(t, v.OK)
	require.Less(t, v.Sent, 200)
	require.Equal(t, v.Sent, v.Handled+v.Skipped)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "no data directory of etcd may be left")
	for _, line := range strings.Split(stderr.String(), "\n") {
		var pid int
		if _, after, ok := strings.Cut(line, "started, pid "); ok {
			_, err := fmt.Sscan(after, &pid)
			require.NoError(t, err)
			require.False(t, alive(pid), "replica with pid %d is left", pid)
		}
	}
}

func TestAMemberOfTheUsersEtcdMayDieMeanwhile(t *testing.T) {
	cluster := testetcd.New(t, testetcd.ThreeMembers)
	client := cluster.Client(t)
	put := func(key string) {
		_, err := client.Put(t.Context(), key, "the user's own")
		require.NoError(t, err)
	}
	put("/bots/one")
	put("/bots-two")
	var stdout, stderr watched
	code := make(chan int, 1)
	go func() {
		code <- run(t.Context(), []string{
			"demo", "--json", "--ttl=5s", "--messages=400", "--prefix=/bots", "--faults=kill",
			"--endpoints", strings.Join(cluster.Endpoints(), ","),
		}, strings.NewReader(""), &stdout, &stderr)
	}()
	enough := regexp.MustCompile(`handled [1-9]\d\d`) // progress lines come every three seconds, so any number from 100 on
	require.Eventually(t, func() bool { return enough.MatchString(stderr.String()) }, time.Minute, 10*time.Millisecond)
	cluster.Leader().Stop()
	require.Zero(t, <-code, "stdout %s, stderr %s", stdout.String(), stderr.String())
	requireOK(t, result{stdout: stdout.String(), stderr: stderr.String()})

	left, err := client.Get(t.Context(), "/bots", clientv3.WithPrefix())
	require.NoError(t, err)
	var keys []string
	for _, kv := range left.Kvs {
		keys = append(keys, string(kv.Key))
	}
	require.Equal(t, []string{"/bots-two", "/bots/one"}, keys, "the demo cleans up, and touches nothing else")
}
