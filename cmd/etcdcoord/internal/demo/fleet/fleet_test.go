//go:build unix

package fleet_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/fleet"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/replica"
)

// role makes the test binary play another process.
const role = "ETCDCOORD_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "replica":
		if err := replica.Main(os.Stdin, os.Stdout, os.Stderr); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	case "parent":
		parent()
	case "broken":
		fmt.Fprintln(os.Stderr, "panic: at the disco")
		os.Exit(7)
	}
	goleak.VerifyTestMain(m)
}

func command(as string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), role+"="+as)
		return cmd
	}
}

func newFleet(t *testing.T, as string) (*fleet.Fleet, *journal.Journal) {
	t.Helper()
	j := journal.New()
	f := fleet.New(j, command(as), replica.Config{Coordinator: "none", StoreURL: "http://127.0.0.1:1"}, io.Discard)
	return f, j
}

func ready(t *testing.T, f *fleet.Fleet, name string) *fleet.Process {
	t.Helper()
	p, err := f.Start(name)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, f.WaitReady(ctx))
	return p
}

func within(t *testing.T, what <-chan struct{}) {
	t.Helper()
	select {
	case <-what:
	case <-time.After(30 * time.Second):
		t.Fatal("not in time")
	}
}

func gone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

func kinds(j *journal.Journal) (kinds []journal.Kind) {
	for _, e := range j.Entries() {
		if e.Kind != journal.Says {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

func TestAKilledReplicaIsReplacedUnderItsNameByAnotherIncarnation(t *testing.T) {
	t.Parallel()
	f, j := newFleet(t, "replica")
	p := ready(t, f, "replica-1")
	require.Equal(t, "replica-1#1", p.Incarnation)
	require.Len(t, f.Targets(), 1)
	require.NoError(t, p.Kill())
	within(t, p.Exited())
	require.Error(t, p.Freeze(), "what is gone cannot be frozen")
	require.Empty(t, f.Targets())
	next := ready(t, f, "replica-1")
	require.Equal(t, "replica-1#2", next.Incarnation)
	require.Nil(t, f.Find("replica-1#1"))
	require.NoError(t, f.Err(), "a kill is no failure")
	require.NoError(t, f.Close(20*time.Second))
	require.True(t, gone(next.PID()))
	require.Equal(t, []journal.Kind{
		journal.Started, journal.Ready, journal.Killed, journal.Exited, journal.Started, journal.Ready, journal.Exited,
	}, kinds(j), "the end of the run is no fault")
}

func TestAFrozenReplicaTakesPostsAndCloseWakesIt(t *testing.T) {
	t.Parallel()
	f, j := newFleet(t, "replica")
	p := ready(t, f, "replica-1")
	require.NoError(t, p.Freeze())
	require.Equal(t, fleet.Frozen, p.View().State)
	require.Len(t, f.Targets(), 1, "nobody has told the platform")
	require.NoError(t, f.Close(20*time.Second))
	require.Equal(t, fleet.Stopped, p.View().State, "it stopped gracefully, so it was woken first")
	require.Equal(t, []journal.Kind{journal.Started, journal.Ready, journal.Frozen, journal.Woken, journal.Exited}, kinds(j))
}

func TestAGracefulStopTakesNoMorePostsAndIsNoFailure(t *testing.T) {
	t.Parallel()
	f, _ := newFleet(t, "replica")
	p := ready(t, f, "replica-1")
	require.NoError(t, p.Terminate())
	require.Empty(t, f.Targets())
	within(t, p.Exited())
	require.Equal(t, fleet.Stopped, p.View().State)
	require.NoError(t, f.Err())
	require.NoError(t, f.Close(time.Second))
	_, err := f.Start("replica-2")
	require.Error(t, err, "a closed fleet starts nothing")
}

func TestAReplicaThatEndsByItselfIsAFailureWithItsLastWords(t *testing.T) {
	t.Parallel()
	f, _ := newFleet(t, "broken")
	_, err := f.Start("replica-1")
	if err == nil { // it may be gone before its configuration is written
		within(t, f.Failed())
	}
	require.Error(t, f.WaitReady(t.Context()))
	require.ErrorContains(t, f.Err(), "exit status 7")
	require.ErrorContains(t, f.Err(), "panic: at the disco")
	require.NoError(t, f.Close(time.Second))
}

// parent has two replicas, freezes one, tells the pids, and waits to be killed.
func parent() {
	f := fleet.New(journal.New(), command("replica"), replica.Config{Coordinator: "none", StoreURL: "http://127.0.0.1:1"}, io.Discard)
	for _, name := range []string{"replica-1", "replica-2"} {
		p, err := f.Start(name)
		if err != nil {
			os.Exit(1)
		}
		<-p.Ready()
		if name == "replica-2" {
			_ = p.Freeze()
		}
		fmt.Println(p.PID())
	}
	time.Sleep(time.Minute)
	os.Exit(1)
}

func TestReplicasDieWithTheirParentFrozenOnesToo(t *testing.T) {
	t.Parallel()
	cmd := command("parent")()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var pids []int
	lines := bufio.NewScanner(out)
	for len(pids) < 2 && lines.Scan() {
		var pid int
		_, err := fmt.Sscan(strings.TrimSpace(lines.Text()), &pid)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	require.Len(t, pids, 2)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return goneOrZombie(pid) }, 10*time.Second, 10*time.Millisecond, "pid %d", pid)
	}
}

// goneOrZombie: an orphan's remains are collected by init, which may take its time, or not be there
// in a container.
func goneOrZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return gone(pid)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}
