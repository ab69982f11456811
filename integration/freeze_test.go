//go:build unix

package integration_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
)

func init() { children["writer"] = writeBlindly }

const (
	writeEvery = 20 * time.Millisecond
	exitLost   = 79 // as the command exits when what it held is lost
)

// writeBlindly is a holder that does not look at its turn before it writes, but only when a write was
// refused: its writes are those that are always on their way.
func writeBlindly() int {
	c, code := childReplica()
	if c == nil {
		return code
	}
	ticket, err := c.Reserve(context.Background(), "c1")
	if err != nil {
		return fail(err)
	}
	turn, err := c.AcquireTurn(context.Background(), ticket)
	if err != nil {
		return fail(err)
	}
	for answers := bufio.NewScanner(os.Stdin); ; time.Sleep(writeEvery) {
		fmt.Println("write", turn.Fence())
		if !answers.Scan() {
			return 0
		}
		if answers.Text() == "done" {
			continue
		}
		began := time.Now()
		err := turn.AssertHeld()
		took := time.Since(began)
		var lost, asCause *etcdcoord.LeaseLostError
		_ = errors.As(err, &lost)
		_ = errors.As(context.Cause(turn.Context()), &asCause)
		if lost == nil || asCause == nil {
			return fail(fmt.Errorf("after a refused write: AssertHeld: %v, cause: %v", err, context.Cause(turn.Context())))
		}
		fmt.Println("lost", lost.Reason, asCause.Reason, took.Microseconds())
		return exitLost
	}
}

// F2. The child's only way to etcd is cut while it is frozen: what it knows when it wakes it knows
// by itself.
func TestFrozenHolderCannotWriteAfterItsSuccessor(t *testing.T) {
	t.Parallel()
	const life, freeze = 3 * time.Second, 5 * time.Second
	b := newBot(t)
	proxy := faultproxy.Before(t, b.etcd.Endpoints()[0])
	holder := b.child("writer", "a", proxy.Endpoint(), life)
	rival := b.replica("b")
	var store fencing.Watermark
	serve := func() (fence etcdcoord.Token, err error) {
		line := holder.hear()
		_, err = fmt.Sscanf(line, "write %d", &fence)
		require.NoError(t, err, line)
		err = store.Admit("c1", fence)
		if err == nil {
			holder.tell("done")
		} else {
			holder.tell("refused")
		}
		return fence, err
	}
	for range 10 {
		_, err := serve()
		require.NoError(t, err)
	}
	frozen := time.Now()
	require.NoError(t, holder.cmd.Process.Signal(syscall.SIGSTOP))
	thawed := time.After(freeze)
	waits := acquiring(soon(t), rival, reserve(t, rival, "c1"))
	var turn *etcdcoord.Turn
	for turn == nil {
		select {
		case o := <-waits:
			require.NoError(t, o.err)
			turn = o.turn
		case line := <-holder.says: // written before it froze
			fence, ok := strings.CutPrefix(line, "write ")
			require.True(t, ok, line)
			require.Equal(t, fmt.Sprint(store.Highest("c1")), fence)
			holder.tell("done")
		case <-time.After(patience):
			require.FailNow(t, "the rival got no turn")
		}
	}
	within(t, frozen, life+lagOfExpiry, "the rival's turn after the freeze")
	previous(t, turn, "a")
	require.NoError(t, store.Admit("c1", turn.Fence()))
	proxy.Drop()
	<-thawed
	require.NoError(t, holder.cmd.Process.Signal(syscall.SIGCONT))

	fence, err := serve()
	require.ErrorIs(t, err, etcdcoord.ErrStaleToken, "the first write after the freeze, with %d", fence)
	var inAssert, asCause string
	var micros int
	line := holder.hear()
	_, err = fmt.Sscanf(line, "lost %s %s %d", &inAssert, &asCause, &micros)
	require.NoError(t, err, line)
	require.Equal(t, string(etcdcoord.Expired), inAssert)
	require.Equal(t, string(etcdcoord.Expired), asCause)
	require.Less(t, time.Duration(micros)*time.Microsecond, 100*time.Millisecond, "AssertHeld asked somebody")
	require.Equal(t, exitLost, holder.exitCode())
	require.NoError(t, store.Admit("c1", turn.Fence()))
	release(t, turn)
}
