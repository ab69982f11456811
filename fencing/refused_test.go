package fencing_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func TestFullEtcdStillReleasesAndExpires(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks, func(cfg *testetcd.Config) { cfg.QuotaBytes = 4 << 20 })
	client := cluster.Client(t)
	p := provider(t, client, "/full/")
	released, err := p.Acquire(t.Context(), "released", "a", long)
	require.NoError(t, err)
	kept, err := p.Acquire(t.Context(), "kept", "a", long)
	require.NoError(t, err)
	expires, err := p.Acquire(t.Context(), "expires", "a", 2*time.Second)
	require.NoError(t, err)
	for err = error(nil); err == nil; {
		_, err = client.Put(t.Context(), "/ballast", strings.Repeat("x", 1<<20))
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)

	_, err = p.Acquire(t.Context(), "new", "a", long)
	unavailable(t, err, fencing.NoSpace)
	_, err = p.Renew(t.Context(), "kept", "a", kept.Token, long)
	unavailable(t, err, fencing.NoSpace)
	require.NoError(t, p.Release(t.Context(), "released", "a", released.Token))
	there := func() (names []string) {
		answer, err := client.Get(t.Context(), "/full/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		require.NoError(t, err)
		for _, kv := range answer.Kvs {
			names = append(names, strings.TrimPrefix(string(kv.Key), "/full/v1/leases/"))
		}
		return names
	}
	require.NotContains(t, there(), "released")
	require.Eventually(t, func() bool { return len(there()) == 1 }, soon, pause)
	require.Less(t, time.Since(expires.Until), time.Second)
	require.Equal(t, []string{"kept"}, there(), "a refused renewal does not end the hold")
}

func TestUserOfThePrefixCanDoEverythingUntilTheRightIsTakenAway(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks)
	root := cluster.Client(t)
	for _, step := range []func() error{
		func() error { _, err := root.UserAdd(t.Context(), "root", "secret"); return err },
		func() error { _, err := root.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := root.RoleAdd(t.Context(), "bot"); return err },
		func() error {
			_, err := root.RoleGrantPermission(t.Context(), "bot", "/bot/", clientv3.GetPrefixRangeEnd("/bot/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserAdd(t.Context(), "bot", "secret"); return err },
		func() error { _, err := root.UserGrantRole(t.Context(), "bot", "bot"); return err },
		func() error { _, err := root.AuthEnable(t.Context()); return err },
	} {
		require.NoError(t, step())
	}
	as := func(user string) *clientv3.Client {
		return cluster.Client(t, func(cfg *clientv3.Config) { cfg.Username, cfg.Password = user, "secret" })
	}
	p := provider(t, as("bot"), "/bot/")
	g, err := p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	_, err = p.Renew(t.Context(), "k", "a", g.Token, long)
	require.NoError(t, err)
	require.NoError(t, p.Release(t.Context(), "k", "a", g.Token))
	short, err := p.Acquire(t.Context(), "k", "a", 500*time.Millisecond)
	require.NoError(t, err)
	next, _ := granted(t, p, "k", "b")
	require.Greater(t, next.Token, short.Token)

	_, err = as("root").RoleRevokePermission(t.Context(), "bot", "/bot/", clientv3.GetPrefixRangeEnd("/bot/"))
	require.NoError(t, err)
	_, err = p.Acquire(t.Context(), "new", "a", long)
	unavailable(t, err, fencing.Denied)
	_, err = p.Renew(t.Context(), "k", "b", next.Token, long)
	unavailable(t, err, fencing.Denied)
	unavailable(t, p.Release(t.Context(), "k", "b", next.Token), fencing.Denied)
}

func TestEtcdThatIsDownIsReportedInTimeAndHealed(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks)
	p := provider(t, cluster.Client(t), "/down/")
	g, err := p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	short, err := p.Acquire(t.Context(), "short", "a", 700*time.Millisecond)
	require.NoError(t, err)
	cluster.Member(0).Stop()

	for verb, call := range map[string]func() error{
		"acquire": func() error { _, err := p.Acquire(briefly(t), "new", "a", long); return err },
		"renew":   func() error { _, err := p.Renew(briefly(t), "k", "a", g.Token, long); return err },
		"release": func() error { return p.Release(briefly(t), "k", "a", g.Token) },
	} {
		began := time.Now()
		require.ErrorIs(t, call(), fencing.ErrUnavailable, verb)
		require.Less(t, time.Since(began), time.Second, verb)
	}
	require.Eventually(t, func() bool { return short.Left() == 0 }, soon, pause)
	require.NoError(t, cluster.Member(0).Restart())
	// Both the release and the end that fell into the outage are made up for.
	later := provider(t, cluster.Client(t), "/down/")
	next, _ := granted(t, later, "k", "b")
	require.Greater(t, next.Token, g.Token)
	granted(t, later, "short", "b")
	leases := func() int {
		answer, err := cluster.Client(t).Leases(t.Context())
		require.NoError(t, err)
		return len(answer.Leases)
	}
	require.Eventually(t, func() bool { return leases() == 2 }, soon, 20*pause, "only the two holds are left")
}
