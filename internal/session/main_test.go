package session_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func TestMain(m *testing.M) {
	// Most of these tests wait for leases to run out; they need company, not cores. A -parallel on the
	// command line is parsed later and counts.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks))
}
