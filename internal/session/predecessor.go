package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

const (
	// lookEvery is how often a registration in the way is looked at. A live owner renews at least
	// every third of its TTL, so a few looks per second see it.
	lookEvery = 250 * time.Millisecond
	// expiryLag is how long etcd may keep a lease past its TTL: it looks every 500 ms.
	expiryLag = 2 * time.Second
)

// awaitFree returns nil when nobody is registered under the replica id. wait bounds the waiting,
// ctx, together with the request timeout, each request.
func awaitFree(wait, ctx context.Context, cfg Config) error {
	var in *occupant
	for {
		kv, err := lookAt(ctx, cfg)
		if err != nil && in != nil && ctx.Err() != nil {
			return errors.Join(in.inUse(cfg), err) // the waiting has ended, if in the middle of a request
		}
		if err != nil || kv == nil {
			return err
		}
		if in == nil || in.createRevision != kv.createRevision || in.lease != kv.lease {
			in = kv
			in.firstSeen = cfg.Clock()
		}
		if in.lease == clientv3.NoLease {
			if err := removeGarbage(ctx, cfg, kv); err != nil {
				return err
			}
		} else if in.Incarnation == cfg.Incarnation {
			// Our own former session, whose revoke was not confirmed: nobody else will end it sooner.
			if err := revokeFormer(ctx, cfg, in.lease); err != nil {
				return err
			}
		} else if alive, err := in.renews(ctx, cfg); err != nil {
			if ctx.Err() != nil {
				return errors.Join(in.inUse(cfg), err)
			}
			return err
		} else if alive {
			return in.inUse(cfg)
		}
		select {
		case <-wait.Done():
			if cause := context.Cause(ctx); cause != nil {
				return errors.Join(in.inUse(cfg), cause)
			}
			return in.inUse(cfg)
		case <-time.After(lookEvery):
		}
	}
}

func revokeFormer(ctx context.Context, cfg Config, lease clientv3.LeaseID) error {
	request, cancel := backend.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	if _, err := cfg.Client.Revoke(request, lease); err != nil && backend.Classify(err) != backend.LeaseGone {
		return fmt.Errorf("revoke the lease of the former session: %w", err)
	}
	return nil
}

// removeGarbage deletes a registration that hangs on no lease. No session wrote it so. If it was
// written over that of a live session, that one gets no place any more, as its compares fail, and
// ends when it finds out. And nothing else would ever take it away.
func removeGarbage(ctx context.Context, cfg Config, seen *occupant) error {
	key := cfg.Schema.Replica(cfg.ReplicaID)
	request, cancel := backend.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	answer, err := cfg.Client.Txn(request).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", seen.modRevision)).
		Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return fmt.Errorf("remove a registration without a lease: %w", err)
	}
	if answer.Succeeded {
		cfg.Logger.Warn("removed a registration without a lease, which no replica can have written",
			"replica", cfg.ReplicaID, "key", key)
	}
	return nil
}

// occupant is a registration in the way.
type occupant struct {
	Registration
	createRevision int64
	modRevision    int64
	lease          clientv3.LeaseID
	firstSeen      time.Duration
	left           int64  // seconds that its lease had left when last seen
	term           uint64 // etcd's raft term then
	looked         bool
}

func lookAt(ctx context.Context, cfg Config) (*occupant, error) {
	request, cancel := backend.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	answer, err := cfg.Client.Get(request, cfg.Schema.Replica(cfg.ReplicaID))
	if err != nil {
		return nil, fmt.Errorf("look for a registration: %w", err)
	}
	if len(answer.Kvs) == 0 {
		return nil, nil
	}
	kv := answer.Kvs[0]
	// A value that does not parse has no process to name; its lease, not its text, decides how long it stays.
	r, _, _ := ParseRegistration(kv.Value)
	return &occupant{
		Registration: r, createRevision: kv.CreateRevision, modRevision: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease),
	}, nil
}

// renews tells whether the occupant is seen to be alive: its lease has more time left than before.
//
// After an etcd leader change every lease starts again with its full TTL, dead ones too, so only
// two looks within one raft term are compared. Time left comes in whole seconds, which hides the
// renewals of very short leases: one that outlives its own TTL in front of our eyes renews as well.
func (o *occupant) renews(ctx context.Context, cfg Config) (bool, error) {
	request, cancel := backend.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	answer, err := cfg.Client.TimeToLive(request, o.lease)
	if err != nil {
		if backend.Classify(err) == backend.LeaseGone {
			return false, nil
		}
		return false, fmt.Errorf("look at the lease of the registered replica: %w", err)
	}
	term := answer.GetRaftTerm()
	if o.looked && term != o.term {
		o.firstSeen = cfg.Clock()
	}
	rose := o.looked && term == o.term && answer.TTL > o.left
	o.left, o.term, o.looked = answer.TTL, term, true
	outlived := cfg.Clock()-o.firstSeen > time.Duration(answer.GrantedTTL)*time.Second+expiryLag
	return (rose || outlived) && answer.TTL >= 0, nil
}

func (o *occupant) inUse(cfg Config) error {
	return &ReplicaIDInUseError{ReplicaID: cfg.ReplicaID, Host: o.Host, PID: o.PID, Started: o.Started}
}
