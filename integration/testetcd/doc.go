// Package testetcd starts real etcd servers inside the process: one member or three, silent, on
// ports of the kernel's choice, closed in milliseconds.
//
// For tests, one etcd per test binary and a prefix per test:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testetcd.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		client := testetcd.Shared(t).Client(t) // closed when the test ends
//		prefix := testetcd.Prefix(t)           // no other test sees its keys
//	}
//
// A test that stops members, fills the quota or turns on authentication starts a cluster of its
// own with New. Start does the same without a testing.TB.
//
// # Promised
//
//   - Start, New, Restart return when the members serve; the ports that they advertise are real.
//   - A port belongs to its member from before the start until Close, also while the member is
//     stopped (on Linux; elsewhere another process may take it meanwhile).
//   - Stop and Close cut what is open and wait for nobody. Close leaves no goroutine of etcd, no
//     port and, unless Config.Dir was set, no file behind. It may be repeated.
//   - What was acknowledged before Stop is there after Restart.
//
// # Not promised
//
//   - Members share the process: a frozen process freezes all of them, and Stop is a killed
//     server, not a killed machine.
//   - Transport security; everything is plain text on the loopback interface.
//
// # When things fail
//
//	a port is taken         Start tries again with other ports (in a temporary directory)
//	members do not serve    an error after Config.StartTimeout
//	no majority runs        Member.Restart returns at once, WaitLeader when its context ends
//	start after Close       ErrClosed
//	Shared without Main     the test fails and says so
package testetcd
