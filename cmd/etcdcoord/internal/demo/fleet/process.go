package fleet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/replica"
)

// Process is one incarnation of a replica.
type Process struct {
	Name        string // "replica-2"; the next incarnation has it too
	Incarnation string // "replica-2#1"

	fleet *Fleet
	cmd   *exec.Cmd
	stdin io.Closer

	ready  chan struct{} // closed when it takes posts
	exited chan struct{} // closed when it is gone

	mu    sync.Mutex // guards the rest; also held while signalling, so that the states and the signals agree
	url   string
	state State
	leads bool
	fatal string
	told  order // how it was told to end
}

// State is a process's state as its parent sees it.
type State string

// The states.
const (
	Starting State = "starting"
	Running  State = "running"
	Frozen   State = "frozen"
	Stopping State = "stopping"
	Killed   State = "killed"
	Dead     State = "dead"
	Stopped  State = "stopped" // gracefully
)

// order is how a process was told to end.
type order int

const (
	toldNothing order = iota
	toldToStop        // it exits with 0
	toldToDie
)

// Ready is closed when the process takes posts; never, if it ends before.
func (p *Process) Ready() <-chan struct{} { return p.ready }

// Exited is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process with SIGKILL.
func (p *Process) Kill() error {
	return p.signal(journal.Killed, Killed, func() error { p.told = toldToDie; return p.cmd.Process.Kill() })
}

// Freeze stops it with SIGSTOP, until Wake.
func (p *Process) Freeze() error {
	return p.signal(journal.Frozen, Frozen, func() error { return freeze(p.cmd.Process) })
}

// Wake lets a frozen process go on.
func (p *Process) Wake() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != Frozen {
		return nil
	}
	// Noted before it is done, and Freeze after: the freeze in the journal is not longer than the real one.
	p.fleet.journal.Add(journal.Entry{Kind: journal.Woken, Replica: p.Incarnation})
	p.state = Running
	return wake(p.cmd.Process)
}

// Terminate asks it to stop gracefully.
func (p *Process) Terminate() error {
	return p.signal(journal.Terminated, Stopping, func() error { p.told = toldToStop; return terminate(p.cmd.Process) })
}

func (p *Process) signal(kind journal.Kind, state State, do func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == Dead || p.state == Killed || p.state == Stopped {
		return fmt.Errorf("%s is gone already", p.Incarnation)
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s of %s (pid %d): %w", kind, p.Incarnation, p.PID(), err)
	}
	p.state = state
	p.fleet.journal.Add(journal.Entry{Kind: kind, Replica: p.Incarnation, Note: fmt.Sprintf("pid %d", p.PID())})
	return nil
}

// listen reads the process's messages until it ends, then buries it.
func (p *Process) listen(stdout io.Reader, tail *tail) {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		var m replica.Message
		if err == nil && json.Unmarshal(line, &m) == nil {
			p.hear(m)
		}
		if err != nil {
			break
		}
	}
	err := p.cmd.Wait() // after the last read, as StdoutPipe wants it
	_ = p.stdin.Close()
	p.mu.Lock()
	p.state, p.leads = Dead, false
	if p.told == toldToStop && err == nil {
		p.state = Stopped
	}
	note := ""
	if p.told == toldNothing || p.told == toldToStop && err != nil {
		note = strings.TrimSpace(fmt.Sprintf("%v: %s %s", exitText(err), p.fatal, tail))
	}
	p.mu.Unlock()
	p.fleet.journal.Add(journal.Entry{Kind: journal.Exited, Replica: p.Incarnation, Note: note})
	close(p.exited)
	p.fleet.gone(p, note)
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0, without being told to"
	}
	return err.Error()
}

func (p *Process) hear(m replica.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.Ready != "":
		p.url = m.Ready
		if p.state == Starting {
			p.state = Running
		}
		p.fleet.journal.Add(journal.Entry{Kind: journal.Ready, Replica: p.Incarnation})
		close(p.ready)
	case m.Leads != nil:
		p.leads = *m.Leads
	case m.Event != "":
		p.fleet.journal.Add(journal.Entry{Kind: journal.Says, Replica: p.Incarnation, Note: m.Event})
	case m.Fatal != "":
		p.fatal = m.Fatal
	}
}

// takesPosts: whoever posts does not know that a process is frozen or was killed a moment ago; a
// stop is announced.
func (p *Process) takesPosts() (url string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url, p.url != "" && (p.state == Running || p.state == Frozen || p.state == Killed)
}

// View is a process as shown in the table.
type View struct {
	Name, Incarnation string
	PID               int
	State             State
	Leads             bool
}

// View looks at the process.
func (p *Process) View() View {
	p.mu.Lock()
	defer p.mu.Unlock()
	return View{p.Name, p.Incarnation, p.PID(), p.state, p.leads}
}

// end makes sure that the process is gone within limit.
func (p *Process) end(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
	}
	err := p.cmd.Process.Kill()
	<-p.exited
	return errors.Join(fmt.Errorf("%s did not stop within %v and was killed", p.Incarnation, limit), err)
}
