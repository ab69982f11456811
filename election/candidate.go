package election

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/session"
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
//
// Whoever asks for the lease of a key must get it whole: etcd 3.7 leaves the lease out of answers
// that are asked for keys only.
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
		[]clientv3.Op{look, clientv3.OpGet(reg)})
	if err != nil {
		return e.notEntered(c, mod, err)
	}
	if answer.Succeeded {
		c.rev = answer.Header.Revision
		return nil
	}
	if e.cfg.Session.SawRegistration(read(answer, 1).Kvs) != nil {
		return errDead
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

// settle finds out what became of a put of unknown outcome, and makes sure that it cannot be applied
// later. After nil c.ghost is 0, and c.rev is set if the put was applied.
func (e *Elector) settle(ctx context.Context, c *candidate) error {
	created, err := e.cfg.Session.Settle(ctx, c.key, c.ghost, c.final)
	if errors.Is(err, session.ErrLost) {
		return errDead
	}
	if err == nil {
		c.rev, c.ghost = created, 0
	}
	return err
}

// verify looks, in one transaction, whether our key is there as we put it, with nobody before it.
// true: we lead. errGone: it is not there. false: somebody is before us, or the key must go.
func (e *Elector) verify(ctx context.Context, c *candidate) (bool, error) {
	answer, err := e.commit(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(c.key), "=", c.rev),
		clientv3.Compare(clientv3.LeaseValue(c.key), "=", e.cfg.Session.Lease()),
		clientv3.Compare(clientv3.CreateRevision(c.prefix), ">", c.rev-1).WithPrefix(),
	}, nil, []clientv3.Op{clientv3.OpGet(c.key)}) // whole, for the lease
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
