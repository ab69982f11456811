package integration_test

import (
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
	goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks))
}
