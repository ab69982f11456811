// Package testetcd starts real etcd servers inside the process: one member or three, ready in a
// fraction of a second, silent, on ports of the kernel's choice, closed in milliseconds.
//
// It is meant for tests of code that uses etcdcoord (or just etcd):
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testetcd.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		cluster := testetcd.Shared(t) // one etcd for the whole test binary
//		client := cluster.Client(t)   // closed when the test ends
//		prefix := testetcd.Prefix(t)  // so that tests do not see each other's keys
//	}
//
// A test that stops members, fills the quota or turns on authentication starts its own with New.
// Start does the same without a *testing.T.
package testetcd
