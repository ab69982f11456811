package fencing

import (
	"context"
	"fmt"
	"time"
)

// Renew implements LeaseProvider. It costs a read and two writes to etcd.
//
// When it fails with ErrUnavailable, the holder may go on to believe in its earlier grant until its
// Until, or until ttl after this call if that is sooner, and try again.
func (p *EtcdLeases) Renew(ctx context.Context, key, owner string, token Token, ttl time.Duration) (LeaseGrant, error) {
	if err := CheckLease(key, owner); err != nil {
		return LeaseGrant{}, err
	}
	if err := CheckTTL(ttl); err != nil {
		return LeaseGrant{}, err
	}
	ctx, cancel, err := p.begin(ctx, "renew", key)
	if err != nil {
		return LeaseGrant{}, err
	}
	defer cancel()
	defer p.releases.holdBack(owner, key)()

	seen, err := p.look(ctx, key)
	if err != nil {
		return LeaseGrant{}, Unavailable(ctx, "renew", key, err)
	}
	var a *attempt
	for { // ends: each round follows a change made by somebody else, or fails with the context
		if lost := p.lost(key, owner, token, seen); lost != nil {
			p.drop(a)
			return LeaseGrant{}, lost
		}
		if a == nil {
			if a, err = p.attempt(ctx, ttl); err != nil {
				return LeaseGrant{}, Unavailable(ctx, "renew", key, err)
			}
		}
		now, wrote, err := p.write(ctx, a, owner, seen)
		if err != nil {
			return LeaseGrant{}, Unavailable(ctx, "renew", key, err)
		}
		if !wrote {
			seen = now
			continue
		}
		g, late := p.settle(a, key, seen, now)
		if late != nil {
			return LeaseGrant{}, &LeaseLostError{Key: key, Token: token, Reason: Expired, Err: late}
		}
		return g, nil
	}
}

// lost is the error of an owner that does not hold key with token, nil if it does.
func (p *EtcdLeases) lost(key, owner string, token Token, seen record) error {
	e := &LeaseLostError{Key: key, Token: token, Reason: Expired}
	switch {
	case seen.absent():
	case seen.token != token:
		e.Err = fmt.Errorf("it is held under fence %d now", seen.token)
	case seen.owner != owner:
		e.Err = fmt.Errorf("it is held by %q", seen.owner)
	case p.ends.past(seen.lease):
	default:
		return nil
	}
	return e
}
