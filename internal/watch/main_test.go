package watch_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks)) }
