// Package peers watches who else is registered. A registration that vanishes is the queue's most
// important trigger: that replica's tickets vanished with it, in the same revision.
package peers

import (
	"context"
	"log/slog"
	"maps"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/keys"
	"github.com/andresayac/botmesh-etcd/internal/session"
	"github.com/andresayac/botmesh-etcd/internal/watch"
)

// Peer is another replica.
type Peer struct {
	Replica  string
	Lease    int64
	stopping bool
	created  int64 // revision of its registration: another one is another session
}

// Known is who was there when somebody last looked. The zero value knows nothing.
type Known struct {
	peers map[string]Peer // by replica id; nil before the first opening
}

// Config of Follow. All fields but Known are required. The functions are called from one goroutine.
type Config struct {
	Client         *clientv3.Client
	Schema         keys.Schema
	ReplicaID      string // not told about
	RequestTimeout time.Duration
	Logger         *slog.Logger

	// Known: what an earlier Follow, which has returned, found out. What has changed since is told.
	Known *Known

	// Rebuilt: the watch was opened, again or for the first time. Anything may have happened before.
	Rebuilt func()
	// Joined: a peer registered after the first Rebuilt of all that share Known.
	Joined func(Peer)
	// Left: its registration vanished in revision. crashed is a hint: it did not say that it was stopping.
	Left func(p Peer, revision int64, crashed bool)
}

// Follow tells about peers until ctx ends.
func Follow(ctx context.Context, cfg Config) {
	f := &follower{cfg: cfg, Known: cfg.Known}
	if f.Known == nil {
		f.Known = &Known{}
	}
	watch.Follow(ctx, cfg.Client, cfg.Schema.Replicas(), cfg.RequestTimeout, watch.Follower{
		Opened: f.opened,
		Event:  f.event,
		Broken: func(err error) {
			cfg.Logger.Debug("watch on replicas broke, it is opened again", "replica", cfg.ReplicaID, "err", err)
		},
	})
}

type follower struct {
	*Known
	cfg  Config
	upTo int64 // what the last read saw; the watch tells some of it once more
}

// opened reads who is there, and tells what changed while no watch was open.
func (f *follower) opened(ctx context.Context) error {
	request, cancel := backend.WithTimeout(ctx, f.cfg.RequestTimeout)
	defer cancel()
	answer, err := f.cfg.Client.Get(request, f.cfg.Schema.Replicas(), clientv3.WithPrefix())
	if err != nil {
		return err
	}
	now := make(map[string]Peer)
	for _, kv := range answer.Kvs {
		if p, ok := f.parse(string(kv.Key), kv.Value, kv.CreateRevision); ok {
			now[p.Replica] = p
		}
	}
	before, first := f.peers, f.peers == nil
	f.peers, f.upTo = maps.Clone(now), answer.Header.Revision
	f.cfg.Rebuilt()
	if first {
		return nil
	}
	for id, p := range before {
		if now[id].created != p.created {
			f.cfg.Left(p, answer.Header.Revision, !p.stopping)
		}
	}
	for id, p := range now {
		if before[id].created != p.created {
			f.cfg.Joined(p)
		}
	}
	return nil
}

func (f *follower) event(e *clientv3.Event) {
	if e.Kv.ModRevision <= f.upTo {
		return
	}
	id, ok := f.cfg.Schema.ParseReplica(string(e.Kv.Key))
	if !ok || id == f.cfg.ReplicaID {
		return
	}
	old, known := f.peers[id]
	if e.Type == clientv3.EventTypeDelete {
		delete(f.peers, id)
		if !known { // its value did not parse; its tickets are gone all the same
			old = Peer{Replica: id}
		}
		f.cfg.Left(old, e.Kv.ModRevision, !old.stopping)
		return
	}
	p, ok := f.parse(string(e.Kv.Key), e.Kv.Value, e.Kv.CreateRevision)
	if !ok {
		return
	}
	f.peers[id] = p
	if !known {
		f.cfg.Joined(p)
	}
}

func (f *follower) parse(key string, value []byte, created int64) (Peer, bool) {
	id, ok := f.cfg.Schema.ParseReplica(key)
	if !ok || id == f.cfg.ReplicaID {
		return Peer{}, false
	}
	r, lease, ok := session.ParseRegistration(value)
	if !ok {
		return Peer{}, false
	}
	return Peer{Replica: id, Lease: lease, stopping: r.Stopping, created: created}, true
}
