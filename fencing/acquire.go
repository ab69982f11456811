package fencing

import (
	"context"
	"time"
)

// Acquire implements LeaseProvider. A free key costs a read and two writes to etcd, a held one only
// the read, and nothing is left behind.
func (p *EtcdLeases) Acquire(ctx context.Context, key, owner string, ttl time.Duration) (LeaseGrant, error) {
	if err := CheckLease(key, owner); err != nil {
		return LeaseGrant{}, err
	}
	if err := CheckTTL(ttl); err != nil {
		return LeaseGrant{}, err
	}
	ctx, cancel, err := p.begin(ctx, "acquire", key)
	if err != nil {
		return LeaseGrant{}, err
	}
	defer cancel()
	defer p.releases.holdBack(owner, key)()

	seen, err := p.look(ctx, key)
	if err != nil {
		return LeaseGrant{}, Unavailable(ctx, "acquire", key, err)
	}
	var a *attempt
	for { // ends: each round follows a change made by somebody else, or fails with the context
		if p.ends.past(seen.lease) {
			if seen, err = p.bury(ctx, key, seen); err != nil {
				p.drop(a)
				return LeaseGrant{}, Unavailable(ctx, "acquire", key, err)
			}
			continue
		}
		if !seen.absent() && !seen.heldBy(owner) {
			p.drop(a)
			return LeaseGrant{}, p.held(key, seen)
		}
		if a == nil {
			if a, err = p.attempt(ctx, ttl); err != nil {
				return LeaseGrant{}, Unavailable(ctx, "acquire", key, err)
			}
		}
		now, wrote, err := p.write(ctx, a, owner, seen)
		if err != nil {
			return LeaseGrant{}, Unavailable(ctx, "acquire", key, err)
		}
		if !wrote {
			seen = now
			continue
		}
		g, late := p.settle(a, key, seen, now)
		if late != nil {
			return LeaseGrant{}, &CoordinationUnavailableError{Op: "acquire", Key: key, Reason: Timeout, Err: late}
		}
		return g, nil
	}
}

// bury revokes, for a caller that wants the key, the lease of a hold that this process knows to
// have ended. The revoke in the background is under way; this one is in the caller's order, so a
// key whose time is over is free for whoever asks through this provider, to the millisecond, and
// under a new token.
func (p *EtcdLeases) bury(ctx context.Context, key string, seen record) (record, error) {
	if _, err := p.ends.revoke(ctx, seen.lease); err != nil {
		return record{}, err
	}
	return p.look(ctx, key)
}
