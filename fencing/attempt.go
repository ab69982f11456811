package fencing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// attempt is one Acquire or Renew on its way to a grant. It has an etcd lease of its own, under
// which it writes at most one record; that is what makes its clean-up exact (see ends).
type attempt struct {
	lease clientv3.LeaseID
	sent  stopwatch // from before the lease was asked for, so that etcd's end of it is never earlier
	ttl   time.Duration
}

// attempt asks etcd for a lease that lives for ttl, rounded up to whole seconds; etcd may raise it
// to its own minimum. Ending it in time is up to us.
//
// The id is ours and not etcd's: so the lease can be revoked although the answer was lost, and a
// request that is repeated below us makes no second one.
func (p *EtcdLeases) attempt(ctx context.Context, ttl time.Duration) (*attempt, error) {
	a := &attempt{lease: clientv3.LeaseID(1 + rand.Int64N(1<<62)), sent: startStopwatch(), ttl: ttl}
	seconds := int64((ttl + time.Second - 1) / time.Second)
	_, err := clientv3.RetryLeaseClient(p.client).LeaseGrant(ctx,
		&etcdserverpb.LeaseGrantRequest{ID: int64(a.lease), TTL: seconds}, grpc.WaitForReady(true))
	if err = rpctypes.Error(err); err == nil || errors.Is(err, rpctypes.ErrLeaseExist) {
		return a, nil // it exists: an answer was lost below us, and the request repeated
	}
	switch backend.Classify(err) {
	case backend.Denied, backend.Refused: // there is no lease
	default:
		p.ends.setUnborn(a.lease)
	}
	return nil, err
}

// write puts owner's record in place of seen, if seen still is what stands there. Otherwise wrote
// is false and now is what stands there instead. After an error the attempt is over and its
// clean-up under way.
func (p *EtcdLeases) write(ctx context.Context, a *attempt, owner string, seen record) (now record, wrote bool, err error) {
	answer, err := p.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(seen.etcdKey), "=", seen.mod)).
		Then(clientv3.OpPut(seen.etcdKey, encode(owner, a.ttl, a.lease), clientv3.WithLease(a.lease))).
		Else(clientv3.OpGet(seen.etcdKey)).
		Commit()
	if err != nil {
		p.giveUp(a, seen, err)
		if backend.Classify(err) == backend.LeaseGone {
			err = a.tooSlow()
		}
		return record{}, false, err
	}
	if !answer.Succeeded {
		return newRecord(seen.etcdKey, (*clientv3.GetResponse)(answer.Responses[0].GetResponseRange())), false, nil
	}
	now = record{
		etcdKey: seen.etcdKey, token: seen.token, mod: answer.Header.Revision, lease: a.lease,
		owner: owner, ttl: a.ttl, alone: true,
	}
	if seen.absent() {
		now.token = Token(answer.Header.Revision)
	}
	return now, true, nil
}

// giveUp ends an attempt whose write failed with err.
//
// If nothing stood there before (or the write certainly was not applied), the lease is revoked at
// once: nobody believes in this write, and a revoke that overtakes it makes it impossible.
//
// If it would have extended a hold, the write may have moved the record to this attempt's lease,
// and the holder still believes in its earlier grant. Revoking now would free the key under its
// feet. So the lease ends when that grant ends, or when the one just asked for would have: a caller
// that asks for less must not count on more from then on. If another process made the earlier
// grant, its end is not known here, and only the latter is left. The lease goes earlier when the
// record is written again, so that the lost write is impossible, or given back, so that nobody
// believes in it.
//
// A second attempt of the same owner need not wait for any of this. If this write was applied, the
// second one replaces it, on its own lease, so that the revoke hits nothing. If it was not, it never
// will be on top of the second one, because it compares the mod revision. It could be applied after
// the second one has been released again; then the revoke takes it away, or has made it impossible.
func (p *EtcdLeases) giveUp(a *attempt, seen record, err error) {
	switch backend.Classify(err) {
	case backend.Denied, backend.Refused, backend.LeaseGone:
		p.drop(a)
		return
	}
	if seen.absent() {
		p.drop(a)
		return
	}
	at := a.sent.wall.Add(a.ttl)
	if before, ok := p.ends.of(seen.lease); ok && before.Before(at) {
		at = before
	}
	p.ends.setVersion(a.lease, at, seen.etcdKey, seen.mod, false)
}

// drop ends an attempt that wrote nothing, or whose write nobody believes in.
func (p *EtcdLeases) drop(a *attempt) {
	if a != nil {
		p.ends.set(a.lease, time.Now())
	}
}

// settle turns a write that was applied into a grant. seen is the record it replaced. late: by the
// time of the answer the grant has already ended, and it must not be believed; it is taken back.
func (p *EtcdLeases) settle(a *attempt, key string, seen, now record) (g LeaseGrant, late error) {
	if seen.alone && seen.lease != a.lease {
		p.ends.set(seen.lease, time.Now()) // nothing hangs on it any more
	}
	p.ends.endVersions(seen.etcdKey, now.mod)
	g = a.sent.grant(key, now.owner, now.token, a.ttl)
	if g.Left() == 0 {
		p.drop(a)
		return LeaseGrant{}, a.tooSlow()
	}
	p.ends.setVersion(a.lease, g.Until, now.etcdKey, now.mod, true)
	p.releases.supersede(now.owner, key, now.token)
	return g, nil
}

func (a *attempt) tooSlow() error {
	return fmt.Errorf("etcd took longer to answer than the TTL of %v; use a longer one: %w", a.ttl, context.DeadlineExceeded)
}
