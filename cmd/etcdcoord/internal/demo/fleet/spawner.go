package fleet

import (
	"os/exec"
	"runtime"
)

// spawner starts processes from one operating system thread that lives as long as the fleet.
// Linux delivers the parent-death signal when the thread that forked ends, and Go may end any
// thread but one that is locked to a goroutine.
type spawner struct {
	requests chan spawnRequest
	done     chan struct{}
}

type spawnRequest struct {
	cmd  *exec.Cmd
	done chan error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for r := range s.requests {
			r.done <- r.cmd.Start()
		}
	}()
	return s
}

func (s *spawner) start(cmd *exec.Cmd) error {
	r := spawnRequest{cmd: cmd, done: make(chan error, 1)}
	s.requests <- r
	return <-r.done
}

// close must come after the last start and after the end of all processes.
func (s *spawner) close() {
	close(s.requests)
	<-s.done
}
