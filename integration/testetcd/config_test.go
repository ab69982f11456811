package testetcd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func TestFastTicksAllowLeasesOfOneSecond(t *testing.T) {
	t.Parallel()
	client := testetcd.Shared(t).Client(t)
	lease, err := client.Grant(soon(t), 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, lease.TTL)
	key := testetcd.Prefix(t) + "k"
	_, err = client.Put(soon(t), key, "v", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	for answer := range client.Watch(soon(t), key) {
		require.NoError(t, answer.Err())
		require.Equal(t, clientv3.EventTypeDelete, answer.Events[0].Type)
		return
	}
	t.Fatal("the lease did not expire")
}

func TestQuotaRaisesNoSpace(t *testing.T) {
	t.Parallel()
	client := testetcd.New(t, testetcd.FastTicks, func(cfg *testetcd.Config) { cfg.QuotaBytes = 2 << 20 }).Client(t)
	value := strings.Repeat("x", 256<<10)
	require.Eventually(t, func() bool {
		_, err := client.Put(soon(t), "k", value)
		if err != nil {
			require.ErrorIs(t, err, rpctypes.ErrNoSpace)
		}
		return err != nil
	}, patience, time.Millisecond)
}

func TestAuthTokensLiveAsLongAsAsked(t *testing.T) {
	t.Parallel()
	c := testetcd.New(t, testetcd.FastTicks, func(cfg *testetcd.Config) { cfg.AuthTokenTTL = 900 * time.Millisecond })
	client := c.Client(t)
	_, err := client.UserAdd(soon(t), "root", "pw")
	require.NoError(t, err)
	_, err = client.UserGrantRole(soon(t), "root", "root")
	require.NoError(t, err)
	_, err = client.AuthEnable(soon(t))
	require.NoError(t, err)
	login, err := client.Authenticate(soon(t), "root", "pw")
	require.NoError(t, err)
	ctx := metadata.AppendToOutgoingContext(soon(t), rpctypes.TokenFieldNameGRPC, login.Token)
	_, err = client.Get(ctx, "k")
	require.NoError(t, err)
	// Each use renews the token, so it must be left alone for longer than its second (and the
	// second in which etcd looks for old ones).
	require.Eventually(t, func() bool {
		_, err = client.Get(ctx, "k")
		return err != nil
	}, patience, 2500*time.Millisecond)
	require.ErrorIs(t, err, rpctypes.ErrInvalidAuthToken)
}

func TestTemporaryDataGoesAndGivenDataStays(t *testing.T) {
	dir, tmp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	start := func(cfg testetcd.Config) (*testetcd.Cluster, *clientv3.Client) {
		cfg.FastTicks, cfg.UnsafeNoFsync = true, true
		c, err := testetcd.Start(cfg)
		require.NoError(t, err)
		return c, c.Client(t)
	}
	c, _ := start(testetcd.Config{})
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.NoError(t, c.Close())
	left, err = os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)

	c, client := start(testetcd.Config{Dir: dir})
	put(t, client, "k", "v")
	require.NoError(t, c.Close())
	c, client = start(testetcd.Config{Dir: dir})
	requireValue(t, client, "k", "v")
	require.NoError(t, c.Close())

	_, err = testetcd.Start(testetcd.Config{Dir: dir, Members: 3})
	require.ErrorContains(t, err, filepath.Join(dir, "member0"))
}

func TestBadConfigIsRefused(t *testing.T) {
	t.Parallel()
	for _, cfg := range []testetcd.Config{{Members: 2}, {Members: -1}, {QuotaBytes: -1}, {AuthTokenTTL: -1}, {StartTimeout: -1}} {
		_, err := testetcd.Start(cfg)
		require.Error(t, err, "%+v", cfg)
	}
}
