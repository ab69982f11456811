package election

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

var (
	// errDead: etcd knows the session no more. The session has been told.
	errDead = errors.New("the session is gone from etcd")
	// errAgain: the registration was put again meanwhile, by ourselves. Try with its new revision.
	errAgain = errors.New("the registration has changed")
	// errGone: our candidate key was there and is not any more.
	errGone = errors.New("the candidate key was removed")
	// errInTheWay: a key of our candidate's name that we did not put.
	errInTheWay = errors.New("a stranger's key has our candidate's name")
	// errUnsettled: it cannot be told yet whether a put was or will be applied.
	errUnsettled = errors.New("an earlier put is not settled yet")
)

// candidate is our key in one election, as far as we know about it.
//
// A put whose answer was lost may be applied at any time later. Therefore every put compares the
// registration's mod revision: settle puts the registration again, and from then on the old put
// compares false.
type candidate struct {
	name   string
	prefix string
	key    string
	rev    int64 // create revision of the key, 0 while it is not known to be there
	ghost  int64 // mod revision compared by a put of unknown outcome, 0 if there is none
	final  bool  // of such a put: it was answered, so it is applied by now or never
}

func (e *Elector) candidate(name string) candidate {
	return candidate{
		name:   name,
		prefix: e.cfg.Schema.Candidates(name),
		key:    e.cfg.Schema.Candidate(name, int64(e.cfg.Session.Lease())),
	}
}

// clean says that nothing of ours is in etcd, nor can come.
func (c *candidate) clean() bool { return c.rev == 0 && c.ghost == 0 }

// commit sends one transaction, bounded by the request timeout.
func (e *Elector) commit(ctx context.Context, ifs []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	request, cancel := backend.WithTimeout(ctx, e.cfg.RequestTimeout)
	defer cancel()
	answer, err := e.cfg.Client.Txn(request).If(ifs...).Then(then...).Else(otherwise...).Commit()
	if err == nil {
		e.cfg.Session.Saw(answer.Header.Revision)
	}
	return answer, err
}

// read is the i-th answer of a transaction, which was a get.
func read(answer *clientv3.TxnResponse, i int) *clientv3.GetResponse {
	return (*clientv3.GetResponse)(answer.Responses[i].GetResponseRange())
}

// enter puts the candidate, if it is not there, or with alone if nobody's is. nil: it is there now,
// and c.rev known. After an error c tells what may be left of the attempt.
func (e *Elector) enter(ctx context.Context, c *candidate, alone bool) error {
	for {
		// The registration changes once per clean-up, so this ends; if not, by ctx.
		if err := e.put(ctx, c, alone); !errors.Is(err, errAgain) {
			return err
		}
	}
}

func (e *Elector) put(ctx context.Context, c *candidate, alone bool) error {
	reg, mod := e.cfg.Session.Registration()
	free, look := clientv3.Compare(clientv3.CreateRevision(c.key), "=", 0), clientv3.OpGet(c.key, clientv3.WithKeysOnly())
	if alone {
		// A range compare must hold for all keys, and holds on an empty range.
		free = clientv3.Compare(clientv3.CreateRevision(c.prefix), "=", 0).WithPrefix()
		look = clientv3.OpGet(c.prefix, append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...)
	}
	answer, err := e.commit(ctx,
		[]clientv3.Cmp{free, clientv3.Compare(clientv3.ModRevision(reg), "=", mod)},
		[]clientv3.Op{clientv3.OpPut(c.key, e.cfg.ReplicaID, clientv3.WithLease(e.cfg.Session.Lease()))},
		[]clientv3.Op{look, clientv3.OpGet(reg, clientv3.WithKeysOnly())})
	if err != nil {
		return e.notEntered(c, mod, err)
	}
	if answer.Succeeded {
		c.rev = answer.Header.Revision
		return nil
	}
	if err := e.sawRegistration(read(answer, 1)); err != nil {
		return err
	}
	present := read(answer, 0).Kvs
	switch {
	case len(present) == 0:
		return errAgain
	case alone:
		return ErrNotElected
	}
	// Nobody but us puts this key, and our own puts were settled before. It hangs on our lease, or on
	// none: either way it must not stay.
	c.rev = present[0].CreateRevision
	e.cfg.Logger.Error("candidate key was put by somebody else, it will be removed", "replica", e.cfg.ReplicaID, "key", c.name, "fence", c.rev)
	return errInTheWay
}

// notEntered sorts out what a put without a good answer can have left.
func (e *Elector) notEntered(c *candidate, mod int64, err error) error {
	switch backend.Classify(err) {
	case backend.LeaseGone:
		e.cfg.Session.Lose(err)
		return errDead
	case backend.Denied, backend.Refused:
		return err // nothing was applied
	case backend.NoSpace:
		c.ghost, c.final = mod, true
	default:
		c.ghost, c.final = mod, false
	}
	return err
}

// sawRegistration takes note of our registration as read in a transaction. Without it the session is lost.
func (e *Elector) sawRegistration(registration *clientv3.GetResponse) error {
	if len(registration.Kvs) == 0 {
		e.cfg.Session.Lose(errors.New("its registration is gone"))
		return errDead
	}
	e.cfg.Session.Bumped(registration.Kvs[0].ModRevision)
	return nil
}

// settle finds out what became of a put of unknown outcome, and makes sure that it cannot be applied
// later. After nil c.ghost is 0, and c.rev is set if the put was applied. Repeating is safe: putting
// the registration once more than needed only makes puts in flight try again.
func (e *Elector) settle(ctx context.Context, c *candidate) error {
	if c.final {
		return e.look(ctx, c)
	}
	reg, _ := e.cfg.Session.Registration()
	answer, err := e.commit(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(c.key), "=", 0),
		clientv3.Compare(clientv3.ModRevision(reg), "=", c.ghost),
	},
		[]clientv3.Op{clientv3.OpPut(reg, e.cfg.Session.RegistrationValue(), clientv3.WithLease(e.cfg.Session.Lease()))},
		[]clientv3.Op{clientv3.OpGet(c.key, clientv3.WithKeysOnly()), clientv3.OpGet(reg, clientv3.WithKeysOnly())})
	switch {
	case backend.Classify(err) == backend.LeaseGone:
		e.cfg.Session.Lose(err)
		return errDead
	case backend.Classify(err) == backend.NoSpace:
		return e.look(ctx, c)
	case err != nil:
		return err
	case answer.Succeeded:
		e.cfg.Session.Bumped(answer.Header.Revision)
		c.ghost = 0
		return nil
	}
	return e.resolve(c, answer)
}

// look is settle without a put, for a put that was answered, and while etcd is full.
func (e *Elector) look(ctx context.Context, c *candidate) error {
	reg, _ := e.cfg.Session.Registration()
	answer, err := e.commit(ctx, nil,
		[]clientv3.Op{clientv3.OpGet(c.key, clientv3.WithKeysOnly()), clientv3.OpGet(reg, clientv3.WithKeysOnly())}, nil)
	if err != nil {
		return err
	}
	return e.resolve(c, answer)
}

// resolve reads the answer {own key, registration}: both as of one revision, which is what proves
// that an absent key stays absent.
func (e *Elector) resolve(c *candidate, answer *clientv3.TxnResponse) error {
	registration := read(answer, 1)
	if err := e.sawRegistration(registration); err != nil {
		return err
	}
	if own := read(answer, 0); len(own.Kvs) > 0 {
		c.rev, c.ghost = own.Kvs[0].CreateRevision, 0
		return nil
	}
	if !c.final && registration.Kvs[0].ModRevision == c.ghost {
		return errUnsettled // etcd is full: the put may be applied when there is space again
	}
	c.ghost = 0
	return nil
}

// verify looks, in one transaction, whether our key is there as we put it, with nobody before it.
// true: we lead. errGone: it is not there. false: somebody is before us, or the key must go.
func (e *Elector) verify(ctx context.Context, c *candidate) (bool, error) {
	answer, err := e.commit(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(c.key), "=", c.rev),
		clientv3.Compare(clientv3.LeaseValue(c.key), "=", e.cfg.Session.Lease()),
		clientv3.Compare(clientv3.CreateRevision(c.prefix), ">", c.rev-1).WithPrefix(),
	}, nil, []clientv3.Op{clientv3.OpGet(c.key, clientv3.WithKeysOnly())})
	if err != nil {
		return false, err
	}
	if answer.Succeeded {
		return true, nil
	}
	present := read(answer, 0).Kvs
	switch {
	case len(present) == 0 || present[0].CreateRevision != c.rev:
		return false, errGone
	case present[0].Lease != int64(e.cfg.Session.Lease()):
		return false, errInTheWay
	}
	return false, nil
}

// withdraw deletes the candidate's key if it is the one that c.rev names. After nil it is gone.
// Guarded by the create revision it is safe to repeat, and a late one deletes nothing of a later try.
func (e *Elector) withdraw(ctx context.Context, c *candidate) error {
	_, err := e.commit(ctx,
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(c.key), "=", c.rev)},
		[]clientv3.Op{clientv3.OpDelete(c.key)}, nil)
	if err == nil {
		c.rev = 0
	}
	return err
}
