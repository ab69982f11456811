package fleet

import "syscall"

// attributes: a process group of its own, so that Ctrl-C reaches the parent alone, and death with
// the parent. The latter is death with the *thread* that starts the process; see spawner.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
