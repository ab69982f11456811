package fencing_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func TestMain(m *testing.M) {
	// Most of these tests wait for leases to run out; they need company, not cores. A -parallel on the
	// command line is parsed later and counts.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks))
}

const (
	long  = time.Hour        // a TTL that does not run out during a test
	soon  = 5 * time.Second  // for what should happen at once, on a busy machine
	pause = time.Millisecond // between two looks
)

// provider is one on a client of its own, as another process would have; closed when the test ends.
func provider(t *testing.T, client *clientv3.Client, prefix string) *fencing.EtcdLeases {
	t.Helper()
	p, err := fencing.NewLeaseProvider(client, fencing.LeaseConfig{Prefix: prefix})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// direct is a client on the shared etcd that looks at keys, and plays whoever else writes there.
type direct struct {
	*clientv3.Client
	t      *testing.T
	prefix string
}

func newDirect(t *testing.T, prefix string) direct {
	return direct{Client: testetcd.Shared(t).Client(t), t: t, prefix: prefix}
}

// keys are all keys and values under the test's prefix.
func (d direct) keys() map[string]string {
	d.t.Helper()
	answer, err := d.Get(d.t.Context(), d.prefix, clientv3.WithPrefix())
	require.NoError(d.t, err)
	all := make(map[string]string)
	for _, kv := range answer.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all
}

// lives reports whether etcd knows the lease.
func (d direct) lives(id clientv3.LeaseID) bool {
	d.t.Helper()
	answer, err := d.TimeToLive(d.t.Context(), id)
	require.NoError(d.t, err)
	return answer.TTL >= 0
}

// leaseOf is the etcd lease on which the lease key of key hangs.
func (d direct) leaseOf(key string) clientv3.LeaseID {
	d.t.Helper()
	answer, err := d.Get(d.t.Context(), d.prefix+"v1/leases/"+key)
	require.NoError(d.t, err)
	require.Len(d.t, answer.Kvs, 1, key)
	return clientv3.LeaseID(answer.Kvs[0].Lease)
}

// nothingRemains waits until the test's prefix is empty and all these etcd leases are gone.
func (d direct) nothingRemains(leases []clientv3.LeaseID) {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return len(d.keys()) == 0 }, soon, pause, "keys remain")
	require.Eventually(d.t, func() bool {
		for _, id := range leases {
			if d.lives(id) {
				return false
			}
		}
		return true
	}, soon, 5*pause, "etcd leases remain")
}

// held requires that key is held, as seen by a provider of another process.
func held(t *testing.T, p fencing.LeaseProvider, key string) *fencing.HeldError {
	t.Helper()
	_, err := p.Acquire(t.Context(), key, "somebody else", long)
	require.ErrorIs(t, err, fencing.ErrHeld)
	var e *fencing.HeldError
	require.ErrorAs(t, err, &e)
	return e
}

// granted waits until key is granted to owner, and returns when that was, as seen by p.
func granted(t *testing.T, p fencing.LeaseProvider, key, owner string) (fencing.LeaseGrant, time.Time) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for {
		g, err := p.Acquire(t.Context(), key, owner, long)
		if err == nil {
			return g, time.Now()
		}
		require.ErrorIs(t, err, fencing.ErrHeld)
		require.True(t, time.Now().Before(deadline), "%q is still held: %v", key, err)
		time.Sleep(pause)
	}
}

// unavailable requires the error for an outcome that is not known.
func unavailable(t *testing.T, err error, reason fencing.UnavailableReason) {
	t.Helper()
	var e *fencing.CoordinationUnavailableError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, fencing.ErrUnavailable)
	require.Equal(t, reason, e.Reason, "%v", err)
	if reason == fencing.Timeout {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}
