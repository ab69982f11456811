// Package fleet runs the replica processes and does to them what production does: kill, freeze,
// wake, stop and replace.
//
// Each process is this very program, executed again. It ends with its parent whatever happens:
// its standard input is a pipe whose end it watches; on Linux the kernel kills it as well, which
// reaches a frozen process too; and on other Unix systems it has a process group of its own, to
// which the kernel sends SIGHUP and SIGCONT when it is orphaned with a stopped member.
//
// Windows has no SIGSTOP and no SIGTERM: CanFreeze and CanStop are false there.
package fleet
