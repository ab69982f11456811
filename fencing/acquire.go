package fencing

import (
	"context"
	"time"
)

// Acquire implements LeaseProvider. A free key costs a read and two writes to etcd, a held one only
// the read, and nothing is left behind.
func (p *EtcdLeases) Acquire(ctx context.Context, key, owner string, ttl time.Duration) (LeaseGrant, error) {
	return p.grant(ctx, "acquire", key, owner, ttl, rules{
		admit: func(ctx context.Context, seen record) (record, error) {
			for p.ends.past(seen.lease) { // ends: each round follows a change made by somebody else, or fails with the context
				var err error
				if seen, err = p.bury(ctx, key, seen); err != nil {
					return record{}, Unavailable(ctx, "acquire", key, err)
				}
			}
			if !seen.absent() && !seen.heldBy(owner) {
				return record{}, p.held(key, seen)
			}
			return seen, nil
		},
		late: func(err error) error {
			return &CoordinationUnavailableError{Op: "acquire", Key: key, Reason: Timeout, Err: err}
		},
	})
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
