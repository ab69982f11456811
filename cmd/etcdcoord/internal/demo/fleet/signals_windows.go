package fleet

import (
	"errors"
	"os"
	"syscall"
)

// What this system can do to a process.
const (
	CanFreeze = false
	CanStop   = false
)

func freeze(*os.Process) error { return errors.ErrUnsupported }
func wake(*os.Process) error   { return errors.ErrUnsupported }

// terminate kills: there is no way to ask a process without a console. It is used at the end of a
// run only, when all work is done.
func terminate(p *os.Process) error { return p.Kill() }

func attributes() *syscall.SysProcAttr { return nil }
