package fencing

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// Release implements LeaseProvider. It costs a read and a write to etcd.
func (p *EtcdLeases) Release(ctx context.Context, key, owner string, token Token) error {
	if err := CheckLease(key, owner); err != nil {
		return err
	}
	leave, err := p.verbs.enter("release", key)
	if err != nil {
		return err
	}
	defer leave()
	if token <= 0 {
		return nil // never granted
	}
	ctx, cancel := backend.ForGivingBack(ctx, p.timeout)
	defer cancel()
	ctx, unbind := p.verbs.bound(ctx)
	defer unbind()
	for {
		seen, err := p.look(ctx, key)
		if err != nil {
			p.releaseLater(key, owner, token)
			return Unconfirmed(ctx, "release", key, err)
		}
		if !seen.heldBy(owner) || seen.token != token {
			return nil
		}
		freed, err := p.free(ctx, seen)
		if err != nil {
			if !seen.alone {
				p.releaseLater(key, owner, token)
			}
			return Unconfirmed(ctx, "release", key, err)
		}
		if freed {
			return nil
		}
	}
}

// free deletes the record that was seen, if it still is what stands there. The compare takes in the
// create revision, that is the token, and the owner, because a record never changes either of them
// without a new mod revision; and a delete that was lost and arrives late hits no later write.
//
// Whether or not the answer came, the etcd lease goes: with the record, if the delete was not
// applied, or after it; and so do those to which a lost extension may have moved it. So after an
// error nothing is left to do for a record that is alone there.
func (p *EtcdLeases) free(ctx context.Context, seen record) (freed bool, err error) {
	answer, err := p.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(seen.etcdKey), "=", seen.mod)).
		Then(clientv3.OpDelete(seen.etcdKey)).
		Commit()
	if err == nil && !answer.Succeeded {
		return false, nil
	}
	if seen.alone {
		p.ends.set(seen.lease, time.Now())
	}
	p.ends.endVersions(seen.etcdKey, seen.mod+1)
	return err == nil, err
}

// releases are the Releases that could not even read the record, and go on in the background until
// they have.
//
// Such a release must not hit what its owner is granted after it. Under the token that is to be
// released that can happen: the record may still be there, and then Acquire extends it. A release
// in the background therefore acts only while no Acquire or Renew of this owner is under way here,
// under a compare with the record that it read before it looked whether one is; and it is dropped
// as soon as the token is granted again.
type releases struct {
	mu     sync.Mutex // guards the map and all in it
	owners map[owned]*ownerState
}

// owned is a key from the view of one owner.
type owned struct{ owner, key string }

// ownerState exists while there is a release in the background, or a writer.
type ownerState struct {
	pending map[Token]struct{}
	writers int // Acquire and Renew under way
}

// state is the state of o, made if need be. The caller holds mu and calls tidy in the end.
func (r *releases) state(o owned) *ownerState {
	s := r.owners[o]
	if s == nil {
		s = &ownerState{pending: make(map[Token]struct{})}
		r.owners[o] = s
	}
	return s
}

func (r *releases) tidy(o owned) {
	if s := r.owners[o]; s != nil && s.writers == 0 && len(s.pending) == 0 {
		delete(r.owners, o)
	}
}

// holdBack keeps releases of this owner from acting until the returned function is called.
func (r *releases) holdBack(owner, key string) (resume func()) {
	o := owned{owner, key}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state(o)
	s.writers++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.writers--
		r.tidy(o)
	}
}

// supersede drops the release of a token that has been granted again since.
func (r *releases) supersede(owner, key string, token Token) {
	o := owned{owner, key}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.owners[o]; s != nil {
		delete(s.pending, token)
		r.tidy(o)
	}
}

// add reports whether the release is not under way already.
func (r *releases) add(o owned, token Token) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state(o)
	_, known := s.pending[token]
	s.pending[token] = struct{}{}
	return !known
}

// mayAct says whether the release is still wanted, and whether it may act at the moment.
func (r *releases) mayAct(o owned, token Token) (wanted, may bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.owners[o]
	if s == nil {
		return false, false
	}
	_, wanted = s.pending[token]
	return wanted, wanted && s.writers == 0
}

func (p *EtcdLeases) releaseLater(key, owner string, token Token) {
	o := owned{owner, key}
	if !p.releases.add(o, token) {
		return
	}
	p.chores.do("releasing", func(ctx context.Context) (bool, error) {
		done, err := p.releaseOnce(ctx, o, token)
		if done {
			p.releases.supersede(owner, key, token)
		}
		return done, err
	}, "key", key, "fence", token)
}

// releaseOnce is one try in the background.
func (p *EtcdLeases) releaseOnce(ctx context.Context, o owned, token Token) (done bool, err error) {
	if wanted, may := p.releases.mayAct(o, token); !may {
		return !wanted, nil
	}
	seen, err := p.look(ctx, o.key)
	if err != nil {
		return false, err
	}
	if !seen.heldBy(o.owner) || seen.token != token {
		return true, nil
	}
	// A writer that has begun since may have written what was read. If it has ended as well, it has
	// superseded this release, or nobody believes in what it wrote.
	if wanted, may := p.releases.mayAct(o, token); !may {
		return !wanted, nil
	}
	freed, err := p.free(ctx, seen)
	return freed || err != nil && seen.alone, err
}
