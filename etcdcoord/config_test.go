package etcdcoord_test

import (
	"errors"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// What is refused, and with which words, is in package integration. Here is what the rest becomes.
func TestDefaultsFollowFromSessionTTL(t *testing.T) {
	t.Parallel()
	type d = time.Duration
	const ms = time.Millisecond
	for _, c := range []struct {
		ttl                                   d
		wantTTL, renew, margin, history, wait d
	}{
		{0, 10 * time.Second, 10 * time.Second / 3, 10 * time.Second / 6, 24 * time.Hour, 5 * time.Second},
		{-time.Hour, 10 * time.Second, 10 * time.Second / 3, 10 * time.Second / 6, 24 * time.Hour, 5 * time.Second},
		{1, time.Second, time.Second / 3, 500 * ms, 24 * time.Hour, 5 * time.Second},
		{1500 * ms, 2 * time.Second, 2 * time.Second / 3, 500 * ms, 24 * time.Hour, 5 * time.Second},
		{3 * time.Second, 3 * time.Second, time.Second, 500 * ms, 24 * time.Hour, 5 * time.Second},
		{3*time.Second + 1, 4 * time.Second, 4 * time.Second / 3, 4 * time.Second / 6, 24 * time.Hour, 5 * time.Second},
		{time.Minute, time.Minute, 20 * time.Second, 10 * time.Second, 24 * time.Hour, 5 * time.Second},
		{48 * time.Hour, 48 * time.Hour, 16 * time.Hour, 8 * time.Hour, 48 * time.Hour, 5 * time.Second},
	} {
		cfg, err := etcdcoord.Config{SessionTTL: c.ttl}.Complete()
		require.NoError(t, err, "%v", c.ttl)
		require.Equal(t, c.wantTTL, cfg.SessionTTL, "%v", c.ttl)
		require.Equal(t, c.renew, cfg.RenewEvery, "%v", c.ttl)
		require.Equal(t, c.margin, cfg.SafetyMargin, "%v", c.ttl)
		require.Equal(t, c.history, cfg.HistoryTTL, "%v", c.ttl)
		require.Equal(t, c.wait, cfg.RequestTimeout, "%v", c.ttl)
		require.Zero(t, cfg.MaxHold, "no limit")
	}
}

func TestWhatIsSetStays(t *testing.T) {
	t.Parallel()
	want := etcdcoord.Config{
		ReplicaID: "r", Prefix: "/p/", SessionTTL: 7 * time.Second, RenewEvery: 3 * time.Second, SafetyMargin: 2 * time.Second,
		HistoryTTL: time.Minute, MaxHold: time.Hour, RequestTimeout: time.Second, Logger: slog.Default(),
	}
	cfg, err := want.Complete()
	require.NoError(t, err)
	require.Equal(t, want, cfg)
}

func TestThePrefixGetsItsFinalSlash(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"": "/etcdcoord/", "/": "/", "bot": "bot/", "/a/b": "/a/b/", "/a/b/": "/a/b/"} {
		cfg, err := etcdcoord.Config{Prefix: given}.Complete()
		require.NoError(t, err)
		require.Equal(t, want, cfg.Prefix)
	}
}

// Host and process tell people where to look; the rest tells two coordinators in one process apart.
func TestTheDefaultIdTellsHostAndProcess(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	require.NoError(t, err)
	seen := make(map[string]bool)
	for range 100 {
		cfg, err := etcdcoord.Config{}.Complete()
		require.NoError(t, err)
		require.Contains(t, cfg.ReplicaID, host+"-"+strconv.Itoa(os.Getpid())+"-")
		seen[cfg.ReplicaID] = true
	}
	require.Len(t, seen, 100)
}

func TestAConfigErrorIsTypedAndNamesItsField(t *testing.T) {
	t.Parallel()
	_, err := etcdcoord.Config{SafetyMargin: time.Minute}.Complete()
	var e *etcdcoord.ConfigError
	require.ErrorAs(t, err, &e)
	require.Equal(t, "SafetyMargin", e.Field)
	require.ErrorIs(t, err, etcdcoord.ErrInvalidConfig)
	require.EqualError(t, errors.Unwrap(err), "1m0s must be less than SessionTTL 10s")
	require.EqualError(t, err, "invalid configuration: SafetyMargin: 1m0s must be less than SessionTTL 10s")
}
