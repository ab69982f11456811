package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/platform"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/replica"
)

// Fleet is all replicas.
type Fleet struct {
	journal *journal.Journal
	command func() *exec.Cmd
	config  replica.Config // of every process, but for the id
	stderr  io.Writer
	spawner *spawner

	mu        sync.Mutex // guards the rest
	processes []*Process // the current incarnation of each name, in the order of names
	all       []*Process
	number    map[string]int // name -> incarnations so far
	failed    error          // the first process that ended otherwise than it was told to
	failure   chan struct{}  // closed when failed is set
	closed    bool
}

// New makes a fleet without processes. command makes the command that runs replica.Main.
func New(j *journal.Journal, command func() *exec.Cmd, config replica.Config, stderr io.Writer) *Fleet {
	return &Fleet{
		journal: j, command: command, config: config, stderr: stderr, spawner: newSpawner(),
		number: make(map[string]int), failure: make(chan struct{}),
	}
}

// Start starts a process under name, in place of the one before.
func (f *Fleet) Start(name string) (*Process, error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, errors.New("the fleet is closed")
	}
	f.number[name]++
	p := &Process{
		Name: name, Incarnation: fmt.Sprintf("%s#%d", name, f.number[name]), fleet: f, state: Starting,
		cmd: f.command(), ready: make(chan struct{}), exited: make(chan struct{}),
	}
	cfg := f.config
	cfg.ID, cfg.Incarnation = p.Name, p.Incarnation
	f.mu.Unlock()

	line, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	p.cmd.SysProcAttr = attributes()
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	tail := &tail{}
	p.cmd.Stderr = tail
	if f.config.Verbose {
		p.cmd.Stderr = io.MultiWriter(f.stderr, tail)
	}
	if err := f.spawner.start(p.cmd); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.Incarnation, err)
	}
	f.journal.Add(journal.Entry{Kind: journal.Started, Replica: p.Incarnation, Note: fmt.Sprintf("pid %d", p.PID())})
	f.add(p)
	go p.listen(stdout, tail)
	if _, err := stdin.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("cannot configure %s: %w", p.Incarnation, err)
	}
	return p, nil
}

func (f *Fleet) add(p *Process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, p)
	for i, old := range f.processes {
		if old.Name == p.Name {
			f.processes[i] = p
			return
		}
	}
	f.processes = append(f.processes, p)
}

// gone is told of every process that ended; why is empty when it ended as it was told to.
func (f *Fleet) gone(p *Process, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if why != "" && f.failed == nil {
		f.failed = fmt.Errorf("%s (pid %d) ended with %s", p.Incarnation, p.PID(), why)
		close(f.failure)
	}
}

// Failed is closed when a process ended otherwise than it was told to; Err tells which.
func (f *Fleet) Failed() <-chan struct{} { return f.failure }

// Err is why Failed is closed.
func (f *Fleet) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// Current is the current process of each name.
func (f *Fleet) Current() []*Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*Process(nil), f.processes...)
}

// Find is the process of an incarnation, nil if there is none.
func (f *Fleet) Find(incarnation string) *Process {
	for _, p := range f.Current() {
		if p.Incarnation == incarnation {
			return p
		}
	}
	return nil
}

// Targets is where the platform may post to.
func (f *Fleet) Targets() []platform.Target {
	var targets []platform.Target
	for _, p := range f.Current() {
		if url, ok := p.takesPosts(); ok {
			targets = append(targets, platform.Target{Replica: p.Incarnation, URL: url})
		}
	}
	return targets
}

// WaitReady waits until every current process takes posts.
func (f *Fleet) WaitReady(ctx context.Context) error {
	for _, p := range f.Current() {
		select {
		case <-p.Ready():
		case <-f.Failed():
			return f.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close wakes what is frozen, stops all processes gracefully, kills what does not stop within
// limit, and waits for the end of all. It does not count as a fault.
func (f *Fleet) Close(limit time.Duration) error {
	f.mu.Lock()
	f.closed = true
	all := append([]*Process(nil), f.all...)
	f.mu.Unlock()
	errs := make([]error, len(all))
	var ends sync.WaitGroup
	for i, p := range all {
		ends.Go(func() {
			_ = p.Wake() // if it is gone, end sees that
			p.retire()
			errs[i] = p.end(limit)
		})
	}
	ends.Wait()
	f.spawner.close()
	return errors.Join(errs...)
}

// retire is Terminate at the end of the run, when it is no fault.
func (p *Process) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == Dead || p.state == Killed || p.state == Stopped {
		return
	}
	p.told, p.state = toldToStop, Stopping
	_ = terminate(p.cmd.Process)
}

// tail keeps the end of what a process wrote to standard error: a panic is there.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - 2048; over > 0 {
		t.buf = t.buf[over:]
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}
