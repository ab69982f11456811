package integration_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// One etcd for all tests of the package, with fast ticks so that a TTL of 1 s is one; each test
// has its own prefix. Tests that hurt the server start their own.
func TestMain(m *testing.M) {
	if child, ok := children[os.Getenv(childEnv)]; ok {
		os.Exit(child())
	}
	// Most of these tests wait for leases to run out; they need company, not cores. A -parallel on the
	// command line is parsed later and counts.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks))
}
