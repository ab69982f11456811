package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of linux/time.h: like CLOCK_MONOTONIC, and it goes on in suspend.
const clockBoottime = 7

// System is the clock of this machine.
func System() time.Duration {
	var ts syscall.Timespec
	// RawSyscall: the call cannot block, so the scheduler need not be told about it.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return monotonic() // a kernel older than 2.6.39, or a sandbox that forbids it; it answers alike each time
	}
	return time.Duration(ts.Nano())
}
