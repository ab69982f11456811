package fencing_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
)

func TestLeftIsNeverNegative(t *testing.T) {
	t.Parallel()
	require.Zero(t, fencing.LeaseGrant{}.Left())
	require.Zero(t, fencing.LeaseGrant{Until: time.Now().Add(-time.Hour)}.Left())
	left := fencing.LeaseGrant{Until: time.Now().Add(time.Hour)}.Left()
	require.LessOrEqual(t, left, time.Hour)
	require.Greater(t, left, time.Hour-time.Minute)
}

func TestChecksAgreeWithTheLaws(t *testing.T) {
	t.Parallel()
	require.NoError(t, fencing.CheckLease("k", strings.Repeat("x", 512)))
	require.ErrorContains(t, fencing.CheckLease("", "a"), "key is empty")
	require.ErrorContains(t, fencing.CheckLease("k", ""), "owner is empty")
	for _, ttl := range []time.Duration{1, time.Millisecond, fencing.MaxTTL} {
		require.NoError(t, fencing.CheckTTL(ttl))
	}
	for _, ttl := range []time.Duration{0, -1, math.MinInt64, fencing.MaxTTL + 1, math.MaxInt64} {
		require.ErrorIs(t, fencing.CheckTTL(ttl), fencing.ErrInvalidTTL)
	}
}
