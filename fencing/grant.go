package fencing

import (
	"context"
	"time"
)

// rules are what Acquire and Renew do not have in common.
type rules struct {
	// admit says whether owner may write in place of what stands there. It may change that, and then
	// returns what stands there now.
	admit func(ctx context.Context, seen record) (record, error)
	// late is the error for a grant that had ended when its answer came.
	late func(error) error
}

// grant gives key to owner for ttl from now, if the rules admit it.
func (p *EtcdLeases) grant(ctx context.Context, op, key, owner string, ttl time.Duration, r rules) (LeaseGrant, error) {
	if err := CheckLease(key, owner); err != nil {
		return LeaseGrant{}, err
	}
	if err := CheckTTL(ttl); err != nil {
		return LeaseGrant{}, err
	}
	ctx, cancel, err := p.begin(ctx, op, key)
	if err != nil {
		return LeaseGrant{}, err
	}
	defer cancel()
	defer p.releases.holdBack(owner, key)()

	seen, err := p.look(ctx, key)
	if err != nil {
		return LeaseGrant{}, Unavailable(ctx, op, key, err)
	}
	var a *attempt
	for { // ends: each round follows a change made by somebody else, or fails with the context
		if seen, err = r.admit(ctx, seen); err != nil {
			p.drop(a)
			return LeaseGrant{}, err
		}
		if a == nil {
			if a, err = p.attempt(ctx, ttl); err != nil {
				return LeaseGrant{}, Unavailable(ctx, op, key, err)
			}
		}
		now, wrote, err := p.write(ctx, a, owner, seen)
		if err != nil {
			return LeaseGrant{}, Unavailable(ctx, op, key, err)
		}
		if !wrote {
			seen = now
			continue
		}
		g, late := p.settle(a, key, seen, now)
		if late != nil {
			return LeaseGrant{}, r.late(late)
		}
		return g, nil
	}
}
