package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// childEnv names what a child process of the test binary does instead of running tests. The others
// are its settings.
const (
	childEnv      = "ETCDCOORD_TEST_CHILD"
	childEndpoint = childEnv + "_ENDPOINT"
	childPrefix   = childEnv + "_PREFIX"
	childID       = childEnv + "_ID"
	childTTL      = childEnv + "_TTL"
)

// children are the roles of child processes. A child ends when its stdin does.
var children = map[string]func() int{"replica": obey}

// process is a replica in a child process, which can be killed and frozen like any other.
type process struct {
	t       testing.TB
	cmd     *exec.Cmd
	started time.Time
	stdin   io.WriteCloser
	stderr  bytes.Buffer // to be read after its end only
	says    chan string  // its lines; closed with its stdout
	ended   chan struct{}
}

// child starts a replica in a process of its own, and returns when it has.
func (b *bot) child(role, id, endpoint string, ttl time.Duration) *process {
	b.t.Helper()
	p := &process{t: b.t, started: time.Now(), says: make(chan string), ended: make(chan struct{})}
	self, err := os.Executable()
	require.NoError(b.t, err)
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), childEnv+"="+role, childEndpoint+"="+endpoint,
		childPrefix+"="+b.prefix, childID+"="+id, childTTL+"="+ttl.String())
	p.cmd.Stderr = &p.stderr
	dieWithParent(p.cmd)
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(b.t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(b.t, err)
	began := make(chan error)
	go func() {
		// "With the parent" means with the thread that started the child: this one lives until then.
		runtime.LockOSThread()
		began <- p.cmd.Start()
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.says <- lines.Text()
		}
		close(p.says)
		_ = p.cmd.Wait() // the exit code is in ProcessState
		close(p.ended)
	}()
	require.NoError(b.t, <-began)
	b.t.Cleanup(func() {
		p.kill()
		if b.t.Failed() && p.stderr.Len() > 0 {
			b.t.Logf("child %s: %s", id, p.stderr.String())
		}
	})
	require.Equal(b.t, "started", p.hear())
	return p
}

// hear waits for the child's next line.
func (p *process) hear() string {
	p.t.Helper()
	return got(p.t, p.says)
}

// tell sends a command.
func (p *process) tell(command string) {
	p.t.Helper()
	_, err := io.WriteString(p.stdin, command+"\n")
	require.NoError(p.t, err)
}

// ask sends a command and gives the number in the answer, a fence.
func (p *process) ask(command, answer string) etcdcoord.Token {
	p.t.Helper()
	p.tell(command)
	line := p.hear()
	number, ok := strings.CutPrefix(line, answer+" ")
	require.True(p.t, ok, line)
	fence, err := strconv.ParseInt(number, 10, 64)
	require.NoError(p.t, err)
	return etcdcoord.Token(fence)
}

// kill is kill -9. It returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails when it has ended already
	for range p.says {       // what it had yet to say
	}
	<-p.ended
}

// exitCode waits for the end of the process.
func (p *process) exitCode() int {
	p.t.Helper()
	for range p.says {
	}
	got(p.t, p.ended)
	return p.cmd.ProcessState.ExitCode()
}

// childReplica is the child's replica, started, or the exit code of a child without one.
func childReplica(opts ...option) (*etcdcoord.Coordinator, int) {
	sessionTTL, err := time.ParseDuration(os.Getenv(childTTL))
	if err != nil {
		return nil, fail(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv(childEndpoint)}, Logger: zap.NewNop()})
	if err != nil {
		return nil, fail(err)
	}
	cfg := etcdcoord.Config{ReplicaID: os.Getenv(childID), Prefix: os.Getenv(childPrefix), SessionTTL: sessionTTL}
	for _, opt := range opts {
		opt(&cfg)
	}
	c, err := etcdcoord.New(client, cfg)
	if err != nil {
		return nil, fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		return nil, fail(err)
	}
	fmt.Println("started")
	return c, 0
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// obey is a replica that does what it is told, line by line.
func obey() int {
	c, code := childReplica()
	if c == nil {
		return code
	}
	var waiting sync.WaitGroup // never waited for: the process is killed
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		verb, name, _ := strings.Cut(commands.Text(), " ")
		ctx := context.Background()
		switch verb {
		case "take": // and hold
			ticket, err := c.Reserve(ctx, name)
			if err != nil {
				return fail(err)
			}
			turn, err := c.AcquireTurn(ctx, ticket)
			if err != nil {
				return fail(err)
			}
			fmt.Println("took", turn.Fence())
		case "wait": // in line
			ticket, err := c.Reserve(ctx, name)
			if err != nil {
				return fail(err)
			}
			waiting.Go(func() { _, _ = c.AcquireTurn(ctx, ticket) })
			fmt.Println("waits", ticket.Fence())
		case "lead":
			leadership, err := c.Lead(ctx, name)
			if err != nil {
				return fail(err)
			}
			fmt.Println("leads", leadership.Fence())
		default:
			return fail(fmt.Errorf("unknown command %q", commands.Text()))
		}
	}
	return 0
}
