package compose_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The demo's own checks (each message once, in order, never two handlers of a chat, fences that rise) have to
// hold although the member that led dies under it. The demo
// kills and freezes replicas of its own meanwhile.
func TestComposeDemoGoesOnWhenTheLeaderIsKilledUnderIt(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "etcdcoord")
	build := exec.CommandContext(docker.interrupted, "go", "build", "-buildvcs=false", "-o", binary, "./cmd/etcdcoord")
	build.Dir = root
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))

	c := up(t)
	ctx, cancel := context.WithTimeout(c.ctx, 3*time.Minute)
	defer cancel()
	busy := c.untilWrites(ctx, 100)

	var stdout, stderr bytes.Buffer
	demo := exec.CommandContext(ctx, binary, "demo", "--json", "--endpoints", strings.Join(c.endpoints(), ","))
	demo.Stdout, demo.Stderr = &stdout, &stderr
	require.NoError(t, demo.Start())
	ended := make(chan error, 1)
	go func() { ended <- demo.Wait() }()

	select {
	case <-busy:
	case err := <-ended:
		require.FailNow(t, "the demo ended before it was busy", "%v\n%s%s", err, &stdout, &stderr)
	}
	victim := c.leader()
	c.must("kill", victim)
	c.waitFor(victim, "exited")
	select {
	case err := <-ended:
		require.FailNow(t, "the demo ended before the member was dead: give it more messages", "%v\n%s%s", err, &stdout, &stderr)
	default:
	}

	require.NoError(t, <-ended, "%s%s", &stdout, &stderr)
	t.Logf("%s", &stdout)
	var verdict struct {
		OK                     bool
		Sent, Handled, Skipped int
	}
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &verdict))
	require.True(t, verdict.OK)
	require.Equal(t, verdict.Sent, verdict.Handled+verdict.Skipped)
	require.Greater(t, verdict.Handled, verdict.Sent/2, "a demo that skips everything shows nothing")
}

// untilWrites returns a channel that is closed once n keys have been written from now on.
func (c *cluster) untilWrites(ctx context.Context, n int) <-chan struct{} {
	ctx, cancel := context.WithCancel(ctx)
	events := c.client(c.endpoints()...).Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithFilterDelete())
	done, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		for answer := range events {
			if n -= len(answer.Events); n <= 0 {
				close(done)
				return
			}
		}
	}()
	c.t.Cleanup(func() { cancel(); <-finished })
	return done
}
