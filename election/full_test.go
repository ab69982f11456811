package election_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// cilium#1172, etcd#14497
func TestWhileEtcdIsFullResignWorksAndLeadWaits(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks, func(cfg *testetcd.Config) { cfg.QuotaBytes = 6 << 20 })
	client := cluster.Client(t)
	a, b := join(t, client, "/p/", "a"), join(t, cluster.Client(t), "/p/", "b")
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	p := b.goLead(t.Context(), "n")
	rev := b.campaigns(t, "n")
	fill(t, client)

	_, err = a.TryLead(t.Context(), "fresh")
	var u *fencing.CoordinationUnavailableError
	require.ErrorAs(t, err, &u)
	require.Equal(t, fencing.NoSpace, u.Reason)
	fresh := a.goLead(t.Context(), "fresh")
	require.NoError(t, l.Resign(t.Context()))
	require.EqualValues(t, rev, p.wins(t).Fence(), "a hand-over needs no space")
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = b.Lead(short, "another")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "space", "the caller learns what kept him waiting")
	fresh.waits(t)

	drain(t, client)
	fresh.wins(t)
	require.Empty(t, candidates(t, client, b.schema, "another"))
}

// fill writes until etcd takes no more.
func fill(t *testing.T, client *clientv3.Client) {
	t.Helper()
	big := strings.Repeat("x", 256<<10)
	for range 200 {
		if _, err := client.Put(t.Context(), "/filler", big); err != nil {
			require.Equal(t, backend.NoSpace, backend.Classify(err))
			return
		}
	}
	require.FailNow(t, "etcd never was full")
}

// drain makes space again.
func drain(t *testing.T, client *clientv3.Client) {
	t.Helper()
	answer, err := client.Delete(t.Context(), "/filler")
	require.NoError(t, err)
	_, err = client.Compact(t.Context(), answer.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	for _, endpoint := range client.Endpoints() {
		_, err = client.Defragment(t.Context(), endpoint)
		require.NoError(t, err)
	}
	_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	require.NoError(t, err)
}

// etcd#14850
func TestMissingPermissionIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks)
	root := cluster.Client(t)
	user(t, root, "root", "root")
	// May do everything a session needs, and read elections, but be no candidate.
	role(t, root, "session", false, "/p/v1/replicas/")
	role(t, root, "onlooker", true, "/p/v1/elections/")
	user(t, root, "bot", "session", "onlooker")
	_, err := root.AuthEnable(t.Context())
	require.NoError(t, err)
	a := join(t, cluster.Client(t, func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "bot", "pw" }), "/p/", "a")

	began := time.Now()
	_, err = a.Lead(t.Context(), "n")
	var u *fencing.CoordinationUnavailableError
	require.ErrorAs(t, err, &u)
	require.Equal(t, fencing.Denied, u.Reason)
	_, err = a.TryLead(t.Context(), "n")
	require.ErrorAs(t, err, &u)
	require.Equal(t, fencing.Denied, u.Reason)
	require.Less(t, time.Since(began), patience/4)

	// Given the right, it works without a new session, and across the end of the first token.
	admin := cluster.Client(t, func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "root", "pw" })
	role(t, admin, "candidate", false, "/p/v1/elections/")
	_, err = admin.UserGrantRole(t.Context(), "bot", "candidate")
	require.NoError(t, err)
	l, err := a.Lead(within(t, patience), "n")
	require.NoError(t, err)
	require.NoError(t, l.Resign(t.Context()))
}

func user(t *testing.T, client *clientv3.Client, name string, roles ...string) {
	t.Helper()
	_, err := client.UserAdd(t.Context(), name, "pw")
	require.NoError(t, err)
	for _, role := range roles {
		if role == "root" {
			_, err = client.RoleAdd(t.Context(), role)
			require.NoError(t, err)
		}
		_, err = client.UserGrantRole(t.Context(), name, role)
		require.NoError(t, err)
	}
}

func role(t *testing.T, client *clientv3.Client, name string, readOnly bool, prefix string) {
	t.Helper()
	_, err := client.RoleAdd(t.Context(), name)
	require.NoError(t, err)
	perm := clientv3.PermReadWrite
	if readOnly {
		perm = clientv3.PermRead
	}
	_, err = client.RoleGrantPermission(t.Context(), name, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(perm))
	require.NoError(t, err)
}
