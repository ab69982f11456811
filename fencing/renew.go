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
	return p.grant(ctx, "renew", key, owner, ttl, rules{
		admit: func(_ context.Context, seen record) (record, error) {
			return seen, p.lost(key, owner, token, seen)
		},
		late: func(err error) error {
			return &LeaseLostError{Key: key, Token: token, Reason: Expired, Err: err}
		},
	})
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
