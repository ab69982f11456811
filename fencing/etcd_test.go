package fencing_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/fencing/fencingtest"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func TestEtcdLeasesObeyAllLaws(t *testing.T) {
	t.Parallel()
	fencingtest.Run(t, func(tt fencingtest.T) fencingtest.Harness {
		here, there := testetcd.Shared(t).Client(t), testetcd.Shared(t).Client(t)
		cfg := fencing.LeaseConfig{Prefix: testetcd.Prefix(t)}
		p, err := fencing.NewLeaseProvider(here, cfg)
		require.NoError(tt, err)
		tt.Cleanup(p.Close)
		other, err := fencing.NewLeaseProvider(there, cfg)
		require.NoError(tt, err)
		tt.Cleanup(other.Close)
		return fencingtest.Harness{Provider: p, Other: other}
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	client := testetcd.Shared(t).Client(t)
	for name, make := range map[string]func() (*fencing.EtcdLeases, error){
		"no client": func() (*fencing.EtcdLeases, error) { return fencing.NewLeaseProvider(nil, fencing.LeaseConfig{}) },
		"a client without connection": func() (*fencing.EtcdLeases, error) {
			return fencing.NewLeaseProvider(clientv3.NewCtxClient(t.Context()), fencing.LeaseConfig{})
		},
		"negative timeout": func() (*fencing.EtcdLeases, error) {
			return fencing.NewLeaseProvider(client, fencing.LeaseConfig{RequestTimeout: -1})
		},
		"NUL in the prefix": func() (*fencing.EtcdLeases, error) {
			return fencing.NewLeaseProvider(client, fencing.LeaseConfig{Prefix: "/a\x00/"})
		},
		"prefix that is not UTF-8": func() (*fencing.EtcdLeases, error) {
			return fencing.NewLeaseProvider(client, fencing.LeaseConfig{Prefix: "/\xff/"})
		},
	} {
		p, err := make()
		require.ErrorIs(t, err, fencing.ErrInvalidConfig, name)
		require.Nil(t, p, name)
	}
}

func TestZeroConfigIsUsableAndHasTheDefaultPrefix(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks)
	client := cluster.Client(t)
	p, err := fencing.NewLeaseProvider(client, fencing.LeaseConfig{})
	require.NoError(t, err)
	defer p.Close()
	_, err = p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	answer, err := client.Get(t.Context(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	require.Equal(t, "/etcdcoord/v1/leases/k", string(answer.Kvs[0].Key))
}

func TestTheRecordIsAWireFormat(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	d := newDirect(t, prefix)
	p := provider(t, testetcd.Shared(t).Client(t), prefix[:len(prefix)-1]) // gets its final slash
	g, err := p.Acquire(t.Context(), "room/1 é", `a "bot"`, 1500*time.Millisecond+1)
	require.NoError(t, err)

	etcdKey := prefix + "v1/leases/room%2F1%20%C3%A9"
	answer, err := d.Get(t.Context(), etcdKey)
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	kv := answer.Kvs[0]
	require.Equal(t, fencing.Token(kv.CreateRevision), g.Token)
	require.Equal(t, `{"owner":"a \"bot\"","ttl_ms":1501,"lease":"`+strconv.FormatInt(kv.Lease, 16)+`"}`, string(kv.Value))
	ttl, err := d.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease))
	require.NoError(t, err)
	require.Equal(t, int64(2), ttl.GrantedTTL, "rounded up to whole seconds")

	// What another program wrote in this format is a hold like any other.
	lease, err := d.Grant(t.Context(), 60)
	require.NoError(t, err)
	_, err = d.Put(t.Context(), prefix+"v1/leases/k", `{"lease":"x","owner":"b","ttl_ms":5000,"more":[1]}`, clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	e := held(t, p, "k")
	require.Equal(t, "b", e.Owner)
	require.Equal(t, 5*time.Second, e.TTL)
}

func TestGuardHoldsOnlyWhileTheLeaseDoes(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	d := newDirect(t, prefix)
	p := provider(t, testetcd.Shared(t).Client(t), prefix)
	g, err := p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	guarded := func(token fencing.Token) bool {
		require.Equal(t, fencing.Guard(prefix+"v1/leases/k", token), p.Guard(fencing.LeaseGrant{Key: "k", Token: token}))
		answer, err := d.Txn(t.Context()).If(p.Guard(fencing.LeaseGrant{Key: "k", Token: token})).Then(clientv3.OpPut(prefix+"data", token.String())).Commit()
		require.NoError(t, err)
		return answer.Succeeded
	}
	require.True(t, guarded(g.Token))
	_, err = p.Renew(t.Context(), "k", "a", g.Token, long)
	require.NoError(t, err)
	require.True(t, guarded(g.Token), "a renewal is the same hold")
	require.NoError(t, p.Release(t.Context(), "k", "a", g.Token))
	require.False(t, guarded(g.Token))
	next, err := p.Acquire(t.Context(), "k", "b", long)
	require.NoError(t, err)
	require.False(t, guarded(g.Token))
	require.True(t, guarded(next.Token))
}

func TestCloseFreesNothingAndEndsEveryVerb(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	d := newDirect(t, prefix)
	other := provider(t, testetcd.Shared(t).Client(t), prefix)
	p := provider(t, testetcd.Shared(t).Client(t), prefix)
	g, err := p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	short, err := p.Acquire(t.Context(), "short", "a", 100*time.Millisecond)
	require.NoError(t, err)
	p.Close()
	p.Close()

	_, err = p.Acquire(t.Context(), "k", "a", long)
	require.ErrorIs(t, err, fencing.ErrClosed)
	_, err = p.Renew(t.Context(), "k", "a", g.Token, long)
	require.ErrorIs(t, err, fencing.ErrClosed)
	require.ErrorIs(t, p.Release(t.Context(), "k", "a", g.Token), fencing.ErrClosed)
	_, _, err = p.Holder(t.Context(), "k")
	require.ErrorIs(t, err, fencing.ErrClosed)

	require.Equal(t, "a", held(t, other, "k").Owner)
	require.Len(t, d.keys(), 2)
	// The end of the short one is etcd's affair now: later than asked, at most its time rounded up.
	_, at := granted(t, other, "short", "b")
	require.Greater(t, at.Sub(short.Until), 500*time.Millisecond, "a timer was left")
	require.Less(t, at.Sub(short.Until), time.Second+time.Second, "one second of TTL, and etcd's own delay")
	// The owner goes on through another provider.
	_, err = other.Renew(t.Context(), "k", "a", g.Token, long)
	require.NoError(t, err)
}

func TestCloseGivesCleanUpThatIsDueItsTime(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	w, client := newWire(t)
	p := provider(t, client, prefix)
	g, err := p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	hold := make(gate)
	w.set(revoke, hold.fault)
	require.NoError(t, p.Release(t.Context(), "k", "a", g.Token))
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Close()
	}()
	require.Eventually(t, func() bool { return w.count(revoke) > 0 }, soon, pause)
	close(hold)
	<-closed
	newDirect(t, prefix).nothingRemains(w.leases())
}

func TestCloseIsBoundedWhenEtcdDoesNotAnswer(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	w, client := newWire(t)
	p := provider(t, client, prefix)
	g, err := p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	w.set(revoke, loseRequest)
	require.NoError(t, p.Release(t.Context(), "k", "a", g.Token))
	began := time.Now()
	p.Close()
	require.Less(t, time.Since(began), 3*time.Second)
}

func TestHolderTellsWhoHolds(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	p := provider(t, testetcd.Shared(t).Client(t), prefix)
	other := provider(t, testetcd.Shared(t).Client(t), prefix)
	_, ok, err := other.Holder(t.Context(), "k")
	require.NoError(t, err)
	require.False(t, ok)
	g, err := p.Acquire(t.Context(), "k", "a", 90*time.Second)
	require.NoError(t, err)
	h, ok, err := other.Holder(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, fencing.LeaseHolder{Key: "k", Owner: "a", Token: g.Token, TTL: 90 * time.Second}, h)
	_, _, err = other.Holder(t.Context(), "")
	require.ErrorIs(t, err, fencing.ErrInvalidKey)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = other.Holder(ended, "k")
	require.ErrorIs(t, err, context.Canceled)
}
