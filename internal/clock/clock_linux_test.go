package clock_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/internal/clock"
)

// The kernel's uptime counts suspend as well, so it is a second opinion. In a container it may be
// that of the container, which is less.
func TestItCountsFromBoot(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("/proc/uptime")
	require.NoError(t, err)
	seconds, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	require.NoError(t, err)
	require.Greater(t, clock.System().Seconds(), seconds-5)
}
