package faults_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/faults"
)

func TestFaultsAreReadInTheirOrderAndUnknownOnesRefused(t *testing.T) {
	t.Parallel()
	got, err := faults.Parse("none")
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = faults.Parse("kill, kill")
	require.NoError(t, err)
	require.Equal(t, []faults.Fault{faults.Kill, faults.Kill}, got)
	for _, wrong := range []string{"", "kill,", "flood", "kill,none", "KILL"} {
		_, err = faults.Parse(wrong)
		require.ErrorContains(t, err, "use kill, freeze and roll", wrong)
	}
	if len(faults.Available()) == 3 {
		got, err = faults.Parse("roll,freeze,kill")
		require.NoError(t, err)
		require.Equal(t, []faults.Fault{faults.Roll, faults.Freeze, faults.Kill}, got)
	} else {
		_, err = faults.Parse("freeze")
		require.ErrorContains(t, err, "not available on this system")
	}
}
