package fencing_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func TestHeldErrorNamesTheHolderAndItsTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g, err := r.p.Acquire(t.Context(), "room/1", "bot-1", 30*time.Second)
	require.NoError(t, err)
	e := held(t, r.other, "room/1")
	require.Equal(t, fencing.HeldError{Key: "room/1", Owner: "bot-1", Token: g.Token, TTL: 30 * time.Second}, *e)
	require.EqualError(t, e, `"room/1" is held by "bot-1" (fence `+g.Token.String()+`) for up to 30s unless renewed`)
}

func TestAskingForAHeldKeyCostsOneRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := r.other.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	held(t, r.p, "k")
	require.Equal(t, 1, r.count(read))
	require.Zero(t, r.count(grant)+r.count(write)+r.count(revoke))
}

func TestLoserOfARaceLeavesNoEtcdLease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	hold := make(gate)
	r.set(write, hold.fault)
	done := make(chan error, 1)
	go func() {
		_, err := r.p.Acquire(t.Context(), "k", "a", long)
		done <- err
	}()
	require.Eventually(t, func() bool { return r.count(write) > 0 }, soon, pause)
	winner, err := r.other.Acquire(t.Context(), "k", "b", long)
	require.NoError(t, err)
	close(hold)
	require.ErrorIs(t, <-done, fencing.ErrHeld)
	require.NoError(t, r.other.Release(t.Context(), "k", "b", winner.Token))
	r.nothingRemains(r.leases())
}

// log is a sink that several goroutines may write to.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func TestRecordThatCannotBeReadIsHeldBySomebodyUnknownAndStays(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"empty": "", "text": "reserved by ops", "null": "null", "number": "7", "array": "[]", "no owner": `{"ttl_ms":5}`,
		"empty owner": `{"owner":""}`, "owner of another type": `{"owner":7}`, "owner with NUL": `{"owner":"a\u0000"}`,
		"cut off": `{"owner":"a"`, "binary": "\x00\xff", "owner too long": `{"owner":"` + strings.Repeat("x", 513) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := testetcd.Prefix(t)
			d := newDirect(t, prefix)
			var sink log
			p, err := fencing.NewLeaseProvider(testetcd.Shared(t).Client(t), fencing.LeaseConfig{Prefix: prefix, Logger: slog.New(slog.NewTextHandler(&sink, nil))})
			require.NoError(t, err)
			defer p.Close()
			etcdKey := prefix + "v1/leases/k"
			lease, err := d.Grant(t.Context(), 60)
			require.NoError(t, err)
			_, err = d.Put(t.Context(), etcdKey, value, clientv3.WithLease(lease.ID))
			require.NoError(t, err)

			for range 3 {
				e := held(t, p, "k")
				require.Empty(t, e.Owner)
				require.ErrorContains(t, e, "held by somebody unknown")
				require.ErrorContains(t, e, "delete "+etcdKey+" with etcdctl")
			}
			h, ok, err := p.Holder(t.Context(), "k")
			require.NoError(t, err)
			require.True(t, ok)
			_, err = p.Renew(t.Context(), "k", "a", h.Token, long)
			require.ErrorIs(t, err, fencing.ErrLeaseLost)
			require.NoError(t, p.Release(t.Context(), "k", "a", h.Token))
			require.Equal(t, map[string]string{etcdKey: value}, d.keys(), "it is left alone")
			require.Equal(t, 1, sink.count("level=WARN"), "warned once")
			// When it is gone, the key is free.
			_, err = d.Revoke(t.Context(), lease.ID)
			require.NoError(t, err)
			_, err = p.Acquire(t.Context(), "k", "a", long)
			require.NoError(t, err)
		})
	}
}

// What stands in the value is not what rules, so a senseless time there harms nobody.
func TestSenselessTTLInARecordIsNotBelieved(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	d := newDirect(t, prefix)
	p := provider(t, testetcd.Shared(t).Client(t), prefix)
	lease, err := d.Grant(t.Context(), 60)
	require.NoError(t, err)
	for _, ttl := range []string{"0", "-5", "9223372036854775807"} {
		_, err = d.Put(t.Context(), prefix+"v1/leases/k", `{"owner":"a","ttl_ms":`+ttl+`}`, clientv3.WithLease(lease.ID))
		require.NoError(t, err)
		require.Zero(t, held(t, p, "k").TTL, ttl)
	}
}

func TestRecordWithoutEtcdLeaseIsHeldForGoodButItsOwnerCanMendIt(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	d := newDirect(t, prefix)
	var sink log
	w, client := newWire(t)
	p, err := fencing.NewLeaseProvider(client, fencing.LeaseConfig{Prefix: prefix, Logger: slog.New(slog.NewTextHandler(&sink, nil))})
	require.NoError(t, err)
	defer p.Close()
	detach := func(key string) fencing.LeaseGrant { // as with etcdctl get | etcdctl put
		g, err := p.Acquire(t.Context(), key, "a", long)
		require.NoError(t, err)
		_, err = d.Put(t.Context(), prefix+"v1/leases/"+key, d.keys()[prefix+"v1/leases/"+key])
		require.NoError(t, err)
		return g
	}
	mended, acquired, released := detach("mended"), detach("acquired"), detach("released")
	for range 2 {
		require.ErrorContains(t, held(t, p, "mended"), "never ends")
	}
	require.Equal(t, 1, sink.count("level=WARN"))
	_, err = p.Renew(t.Context(), "mended", "a", mended.Token, long)
	require.NoError(t, err)
	require.NotZero(t, d.leaseOf("mended"))
	again, err := p.Acquire(t.Context(), "acquired", "a", long)
	require.NoError(t, err)
	require.Equal(t, acquired.Token, again.Token)
	require.NotZero(t, d.leaseOf("acquired"))
	require.NoError(t, p.Release(t.Context(), "released", "a", released.Token))
	require.NotContains(t, d.keys(), prefix+"v1/leases/released")

	// Nor is it forgotten when the delete is lost and there is no lease to revoke.
	lost := detach("lost")
	w.set(write, loseRequest)
	unavailable(t, p.Release(briefly(t), "lost", "a", lost.Token), fencing.Timeout)
	w.set(write, nil)
	require.Eventually(t, func() bool { _, there := d.keys()[prefix+"v1/leases/lost"]; return !there }, soon, pause)
}

// A record that was moved to a lease of somebody else must not cost that somebody his other keys.
func TestEtcdLeaseThatIsNotTheRecordsOwnIsNeverRevoked(t *testing.T) {
	t.Parallel()
	prefix := testetcd.Prefix(t)
	d := newDirect(t, prefix)
	w, client := newWire(t)
	p := provider(t, client, prefix)
	foreign, err := d.Grant(t.Context(), 60)
	require.NoError(t, err)
	_, err = d.Put(t.Context(), prefix+"theirs", "precious", clientv3.WithLease(foreign.ID))
	require.NoError(t, err)
	move := func(key string) fencing.LeaseGrant {
		g, err := p.Acquire(t.Context(), key, "a", long)
		require.NoError(t, err)
		_, err = d.Put(t.Context(), prefix+"v1/leases/"+key, d.keys()[prefix+"v1/leases/"+key], clientv3.WithLease(foreign.ID))
		require.NoError(t, err)
		return g
	}
	g := move("renewed")
	_, err = p.Renew(t.Context(), "renewed", "a", g.Token, long)
	require.NoError(t, err)
	require.NoError(t, p.Release(t.Context(), "renewed", "a", g.Token))
	g = move("released")
	require.NoError(t, p.Release(t.Context(), "released", "a", g.Token))
	g = move("lost")
	w.set(write, loseAnswer)
	unavailable(t, p.Release(briefly(t), "lost", "a", g.Token), fencing.Timeout)
	w.set(write, nil)
	require.Eventually(t, func() bool { return len(d.keys()) == 1 }, soon, pause)
	p.Close()
	require.Equal(t, map[string]string{prefix + "theirs": "precious"}, d.keys())
}

func TestKeyDeletedByHandIsFreeAndItsHolderIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g, err := r.p.Acquire(t.Context(), "k", "a", long)
	require.NoError(t, err)
	_, err = r.Delete(t.Context(), r.prefix+"v1/leases/k")
	require.NoError(t, err)
	next, err := r.other.Acquire(t.Context(), "k", "b", long)
	require.NoError(t, err)
	require.Greater(t, next.Token, g.Token)
	_, err = r.p.Renew(t.Context(), "k", "a", g.Token, long)
	require.ErrorIs(t, err, fencing.ErrLeaseLost)
	require.ErrorContains(t, err, "held under fence "+next.Token.String()+" now")
	require.NoError(t, r.p.Release(t.Context(), "k", "a", g.Token))
	require.Equal(t, "b", held(t, r.p, "k").Owner)
}
