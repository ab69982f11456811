package tickets_test

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// tappedKV is the part of a client that reads and writes.
type tappedKV struct {
	clientv3.KV
	tap *tap
}

func (k tappedKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return through(k.tap, ctx, call{"nudge", key, true}, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return k.KV.Put(ctx, key, value, opts...)
	})
}

func (k tappedKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	kind := "look"
	switch op := clientv3.OpGet(key, opts...); {
	case op.IsSerializable():
		kind = "guess"
	case op.Rev() != 0:
		kind = "skipped"
	case strings.HasSuffix(key, "/replicas/"):
		kind = "peers"
	case strings.Contains(key, "/inbox/"):
		kind = "inbox"
	case strings.Contains(key, "/tickets/"):
		kind = "ghost"
	}
	return through(k.tap, ctx, call{kind: kind, key: key}, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return k.KV.Get(ctx, key, opts...)
	})
}

func (k tappedKV) Txn(ctx context.Context) clientv3.Txn { return &tappedTxn{kv: k, ctx: ctx} }

type tappedTxn struct {
	kv              tappedKV
	ctx             context.Context
	cmps            []clientv3.Cmp
	then, otherwise []clientv3.Op
}

func (x *tappedTxn) If(cmps ...clientv3.Cmp) clientv3.Txn { x.cmps = cmps; return x }

func (x *tappedTxn) Then(ops ...clientv3.Op) clientv3.Txn { x.then = ops; return x }

func (x *tappedTxn) Else(ops ...clientv3.Op) clientv3.Txn { x.otherwise = ops; return x }

func (x *tappedTxn) Commit() (*clientv3.TxnResponse, error) {
	c := call{kindOf(x.cmps, x.then, x.otherwise), string(x.then[0].KeyBytes()), anyPut(x.then)}
	if c.kind == "reserve" {
		c.key = string(x.otherwise[1].KeyBytes())
	}
	return through(x.kv.tap, x.ctx, c, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return x.kv.KV.Txn(ctx).If(x.cmps...).Then(x.then...).Else(x.otherwise...).Commit()
	})
}

// tappedLease is the part of a client that has to do with leases. Renewals pass.
type tappedLease struct {
	clientv3.Lease
	tap *tap
}

func (l tappedLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	kind := "history lease"
	if ttl == int64(sessionTTL.Seconds()) {
		kind = "session lease"
	}
	return through(l.tap, ctx, call{kind: kind, puts: true}, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return l.Lease.Grant(ctx, ttl)
	})
}

func (l tappedLease) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return through(l.tap, ctx, call{kind: "revoke"}, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
		return l.Lease.Revoke(ctx, id)
	})
}

func (l tappedLease) TimeToLive(ctx context.Context, id clientv3.LeaseID, opts ...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	return through(l.tap, ctx, call{kind: "time to live"}, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return l.Lease.TimeToLive(ctx, id, opts...)
	})
}
