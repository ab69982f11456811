package demo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo"
)

func TestARangeReadsWhatItWrites(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]demo.Range{
		"20ms-80ms": {20 * time.Millisecond, 80 * time.Millisecond},
		"1s":        {time.Second, time.Second},
		"0s-1m30s":  {0, 90 * time.Second},
	} {
		var r, again demo.Range
		require.NoError(t, r.Set(text))
		require.Equal(t, want, r)
		require.NoError(t, again.Set(r.String()))
		require.Equal(t, r, again)
	}
	for _, wrong := range []string{"", "-", "5", "1s-", "-1s", "2s-1s", "1s-2s-3s"} {
		var r demo.Range
		require.Error(t, r.Set(wrong), wrong)
	}
}
