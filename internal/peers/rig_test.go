package peers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/keys"
	"github.com/andresayac/botmesh-etcd/internal/peers"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks)) }

// patience bounds what should happen soon on a machine that may be busy.
const patience = 20 * time.Second

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// world is a prefix in etcd on which replicas come and go as plain keys.
type world struct {
	t      *testing.T
	plain  *clientv3.Client
	schema keys.Schema
}

func newWorld(t *testing.T, etcd *testetcd.Cluster) *world {
	return &world{t, etcd.Client(t), keys.New(testetcd.Prefix(t))}
}

// stranger is a replica as etcd sees it.
type stranger struct {
	id    string
	lease clientv3.LeaseID
	value session.Registration
}

// arrives registers a replica on a lease of its own.
func (w *world) arrives(id string) stranger {
	w.t.Helper()
	lease, err := w.plain.Grant(within(w.t, patience), 60)
	require.NoError(w.t, err)
	s := stranger{id, lease.ID, session.Registration{
		Incarnation: id + "-1", Host: "h", PID: 1, Lease: strconv.FormatInt(int64(lease.ID), 16),
	}}
	w.registers(s)
	return s
}

func (w *world) registers(s stranger) {
	w.t.Helper()
	value, err := json.Marshal(s.value)
	require.NoError(w.t, err)
	w.put(w.schema.Replica(s.id), string(value), s.lease)
}

func (w *world) put(key, value string, lease clientv3.LeaseID) {
	w.t.Helper()
	_, err := w.plain.Put(within(w.t, patience), key, value, clientv3.WithLease(lease))
	require.NoError(w.t, err)
}

// dies gives the revision in which everything of the replica vanished.
func (w *world) dies(s stranger) int64 {
	w.t.Helper()
	answer, err := w.plain.Revoke(within(w.t, patience), s.lease)
	require.NoError(w.t, err)
	return answer.Header.Revision
}

// stops says so first.
func (w *world) stops(s stranger) int64 {
	w.t.Helper()
	s.value.Stopping = true
	w.registers(s)
	return w.dies(s)
}

// follower writes down what Follow tells.
type follower struct {
	t    *testing.T
	told chan string
	quit context.CancelFunc
	done chan struct{}
}

// follow starts to follow as replica "a", and returns when the first watch is open.
func (w *world) follow(client *clientv3.Client, known *peers.Known) *follower {
	w.t.Helper()
	ctx, quit := context.WithCancel(w.t.Context())
	f := &follower{w.t, make(chan string, 1000), quit, make(chan struct{})}
	go func() {
		defer close(f.done)
		peers.Follow(ctx, peers.Config{
			Client: client, Schema: w.schema, ReplicaID: "a", RequestTimeout: 5 * time.Second,
			Logger: slog.New(slog.DiscardHandler), Known: known,
			Rebuilt: func() { f.told <- "rebuilt" },
			Joined:  func(p peers.Peer) { f.told <- "joined " + p.Replica },
			Left: func(p peers.Peer, revision int64, crashed bool) {
				f.told <- left(p.Replica, p.Lease, revision, crashed)
			},
		})
	}()
	w.t.Cleanup(f.stop)
	require.Equal(w.t, "rebuilt", f.next())
	return f
}

func (f *follower) stop() {
	f.quit()
	<-f.done
}

func left(replica string, lease, revision int64, crashed bool) string {
	return fmt.Sprintf("left %s %x in %d, crashed %v", replica, lease, revision, crashed)
}

func (f *follower) next() string {
	f.t.Helper()
	select {
	case what := <-f.told:
		return what
	case <-within(f.t, patience).Done():
		require.FailNow(f.t, "nothing was told")
		return ""
	}
}

// news is what is told next, other than that the watch was opened.
func (f *follower) news() string {
	f.t.Helper()
	for {
		if what := f.next(); what != "rebuilt" {
			return what
		}
	}
}
