//go:build unix

package integration_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
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

// writeBlindly is a holder that writes without looking at its turn: its writes are those that are
// always on their way. When one was refused, it says what the turn told it when it woke up.
func writeBlindly() int {
	// One thread for Go code: whoever runs when the process is frozen runs first when it wakes.
	runtime.GOMAXPROCS(1)
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
	granted, err := c.Reserve(context.Background(), "c2") // at once, for nobody is in line
	if err != nil {
		return fail(err)
	}
	var woke, tooLate error
	var took time.Duration
	for answers := bufio.NewScanner(os.Stdin); ; time.Sleep(writeEvery) {
		fmt.Println("write", turn.Fence())
		if !answers.Scan() {
			return 0
		}
		switch answers.Text() {
		case "done":
		case "freeze":
			last := time.Now()
			fmt.Println("ready")
			awaitFreeze(last)
			began := time.Now()
			woke = turn.AssertHeld()
			took = time.Since(began)
			_, tooLate = c.AcquireTurn(context.Background(), granted)
		case "refused":
			fmt.Println("lost", reason(woke), reason(context.Cause(turn.Context())), reason(tooLate), took.Microseconds())
			return exitLost
		}
	}
}

// reason of a loss, in one word.
func reason(err error) etcdcoord.LostReason {
	var lost *etcdcoord.LeaseLostError
	if !errors.As(err, &lost) {
		return "none"
	}
	return lost.Reason
}

// awaitFreeze returns when the process was frozen after last and is not any more. It never lets
// another goroutine run.
func awaitFreeze(last time.Time) {
	for {
		now := time.Now()
		if now.Sub(last) > 2*time.Second {
			return
		}
		last = now
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
	line := holder.hear()
	require.Equal(t, fmt.Sprint("write ", store.Highest("c1")), line)
	holder.tell("freeze")
	require.Equal(t, "ready", holder.hear())
	frozen := time.Now()
	require.NoError(t, holder.cmd.Process.Signal(syscall.SIGSTOP))
	thawed := time.After(freeze)
	waits, other := acquiring(soon(t), rival, reserve(t, rival, "c1")), acquiring(soon(t), rival, reserve(t, rival, "c2"))
	turn := acquired(t, waits)
	within(t, frozen, life+lagOfExpiry, "the rival's turn after the freeze")
	previous(t, turn, "a")
	acquired(t, other)
	require.NoError(t, store.Admit("c1", turn.Fence()))
	proxy.Drop()
	<-thawed
	require.NoError(t, holder.cmd.Process.Signal(syscall.SIGCONT))

	fence, err := serve()
	require.ErrorIs(t, err, etcdcoord.ErrStaleToken, "the first write after the freeze, with %d", fence)
	var inAssert, asCause, whenAcquired etcdcoord.LostReason
	var micros int
	line = holder.hear()
	_, err = fmt.Sscanf(line, "lost %s %s %s %d", &inAssert, &asCause, &whenAcquired, &micros)
	require.NoError(t, err, line)
	require.Equal(t, etcdcoord.Expired, inAssert)
	require.Equal(t, etcdcoord.Expired, asCause)
	require.Equal(t, etcdcoord.Superseded, whenAcquired, "a turn that was granted before the freeze is no turn any more")
	require.Less(t, time.Duration(micros)*time.Microsecond, 100*time.Millisecond, "AssertHeld asked somebody")
	require.Equal(t, exitLost, holder.exitCode())
	require.NoError(t, store.Admit("c1", turn.Fence()))
	release(t, turn)
}
