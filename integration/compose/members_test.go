package compose_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestComposeClusterHasThreeHealthyMembersOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	c := up(t)
	ctx, cancel := context.WithTimeout(c.ctx, 20*time.Second)
	defer cancel()

	client := c.client(c.endpoints()...)
	list, err := client.MemberList(ctx)
	require.NoError(t, err)
	advertised := map[string][]string{}
	for _, m := range list.Members {
		advertised[m.Name] = m.ClientURLs
	}
	want := map[string][]string{}
	ids := map[uint64]bool{}
	for _, member := range members {
		want[member] = []string{"http://" + c.endpoint(member)} // what a client that syncs is told, it can reach
		status, err := client.Status(ctx, c.endpoint(member))
		require.NoError(t, err)
		require.Equal(t, list.Header.ClusterId, status.Header.ClusterId, "%s is in the same cluster", member)
		require.Empty(t, status.Errors)
		ids[status.Header.MemberId] = true

		hosts, err := c.inspect(member, `{{range .NetworkSettings.Ports}}{{range .}}{{.HostIp}} {{end}}{{end}}`)
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1", hosts, "%s is published on loopback, once, and nowhere else", member)
	}
	require.Equal(t, want, advertised)
	require.Len(t, ids, 3, "each port is another member")
}

func TestComposeClusterGoesOnWithoutOneMemberAndTakesItBack(t *testing.T) {
	t.Parallel()
	c := up(t)
	client := c.client(c.endpoints()...)
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Minute)
	defer cancel()
	_, err := client.Put(ctx, "before", "1")
	require.NoError(t, err)

	victim := c.leader() // the worst one to lose
	c.must("kill", victim)
	c.waitFor(victim, "exited")
	// The first requests may meet the election and the broken connection.
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, err := client.Put(ctx, "during", "2")
		return err == nil
	}, 30*time.Second, 50*time.Millisecond, "two of three take writes")
	got, err := client.Get(ctx, "before")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1, "and serve what was written before")

	c.must("start", victim)
	c.waitFor(victim, "healthy")
	got, err = c.client(c.endpoint(victim)).Get(ctx, "during")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1, "it has caught up with what it missed")
	require.Equal(t, "2", string(got.Kvs[0].Value))
}
