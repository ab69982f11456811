//go:build unix

package fleet

import (
	"os"
	"syscall"
)

// What this system can do to a process.
const (
	CanFreeze = true
	CanStop   = true
)

func freeze(p *os.Process) error    { return p.Signal(syscall.SIGSTOP) }
func wake(p *os.Process) error      { return p.Signal(syscall.SIGCONT) }
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
