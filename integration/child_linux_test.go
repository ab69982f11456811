package integration_test

import (
	"os/exec"
	"syscall"
)

// dieWithParent: a child that is frozen does not see the end of its stdin.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
