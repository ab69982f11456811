package screen_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/judge"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/screen"
)

func TestPlainLinesComeAtOnceAndProgressNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var out bytes.Buffer
		lines := make(chan screen.Line, 8)
		board := func() screen.Board {
			return screen.Board{Elapsed: 3 * time.Second, Sent: 4, Total: 9, Rows: []screen.Row{{Name: "replica-1#1", Leader: true}}}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			screen.Plain(ctx, &out, board, lines)
		}()
		lines <- screen.Line{At: 1500 * time.Millisecond, Replica: "replica-1#1", Text: "SIGKILL, pid 7"}
		time.Sleep(3500 * time.Millisecond)
		lines <- screen.Line{Text: "last"}
		end()
		<-done
		require.Equal(t, "   1.5s  replica-1#1  SIGKILL, pid 7\n"+
			"   3.0s               sent 4 of 9, handled 0, under way 0, gone with a replica 0; leader: replica-1#1\n"+
			"   0.0s               last\n", out.String())
	})
}

func TestTheVerdictSaysOKOnlyWhenItIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v    judge.Verdict
		says string
	}{
		{judge.Verdict{OK: true, Sent: 5, Handled: 5}, "\nok: each update was handled once and in its chat's order\n"},
		{judge.Verdict{OK: true, Sent: 5, Handled: 3, Skipped: 2}, "but for the 2 that were in the hands of a killed or frozen replica"},
		{judge.Verdict{Sent: 5, Handled: 5, Overlaps: 2, OutOfOrder: 1}, "\nNOT OK: 3 violations\n"},
		{judge.Verdict{}, "nothing was sent"},
	} {
		var plain, colored bytes.Buffer
		require.NoError(t, screen.Verdict(&plain, &c.v, false))
		require.Contains(t, plain.String(), c.says)
		require.NotContains(t, plain.String(), "\x1b")
		require.NoError(t, screen.Verdict(&colored, &c.v, true))
		require.Contains(t, colored.String(), "\x1b")
		require.Equal(t, c.v.OK, bytes.Contains(plain.Bytes(), []byte("\nok: ")))
	}
}
