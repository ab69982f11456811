//go:build unix && !linux

package fleet

import "syscall"

// attributes: a process group of its own, so that Ctrl-C reaches the parent alone.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
