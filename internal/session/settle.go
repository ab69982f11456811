package session

import (
	"context"
	"errors"
	"fmt"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// ErrNeedsSpace says that a put cannot be settled yet: etcd is full, and may still apply it when
// there is space again.
var ErrNeedsSpace = errors.New("not settled while etcd is full")

// Settle finds out what became of a put of key on this session's lease whose answer was lost. The
// put compared the registration's mod revision with mod. created is the key's create revision, or
// 0: then the put was not applied and never can be. final says that etcd has answered the put,
// with "no space", so that it is applied by now or never.
//
// The proof is one answer that says that key is absent and that the registration has moved on:
// from then on the put's own compare fails. So the registration is put again; anybody else's
// bump does as well. Repeating is safe, late copies of the bump included.
//
// Errors: ErrLost, of which the session has been told; ErrNeedsSpace; that of the etcd client.
func (s *Session) Settle(ctx context.Context, key string, mod int64, final bool) (created int64, err error) {
	request, cancel := backend.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	look := []clientv3.Op{clientv3.OpGet(key, clientv3.WithKeysOnly()), clientv3.OpGet(s.key)}
	if !final {
		answer, err := s.cfg.Client.Txn(request).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.Compare(clientv3.ModRevision(s.key), "=", mod)).
			Then(clientv3.OpPut(s.key, s.value, clientv3.WithLease(s.lease))).
			Else(look...).Commit()
		switch backend.Classify(err) {
		case backend.None:
			return s.settled(answer, mod, final)
		case backend.LeaseGone:
			s.Lose(err)
			return 0, s.Err()
		case backend.NoSpace:
			// A full etcd refuses the put; looking needs none.
		default:
			return 0, err
		}
	}
	answer, err := s.cfg.Client.Txn(request).Then(look...).Commit()
	if err != nil {
		return 0, err
	}
	answer.Succeeded = false // no compare, and so no bump
	return s.settled(answer, mod, final)
}

func (s *Session) settled(answer *clientv3.TxnResponse, mod int64, final bool) (created int64, err error) {
	s.Saw(answer.Header.Revision)
	if answer.Succeeded {
		s.bumped(answer.Header.Revision)
		return 0, nil
	}
	found, registration := answer.Responses[0].GetResponseRange().Kvs, answer.Responses[1].GetResponseRange().Kvs
	if err := s.SawRegistration(registration); err != nil {
		return 0, err
	}
	switch {
	case len(found) > 0:
		return found[0].CreateRevision, nil
	case !final && registration[0].ModRevision == mod:
		return 0, ErrNeedsSpace
	}
	return 0, nil
}

// SawRegistration takes in what an answer said of this replica's registration. If it is absent, or
// another session's, this one is lost: then, and only then, it returns an error, which wraps ErrLost.
func (s *Session) SawRegistration(kvs []*mvccpb.KeyValue) error {
	if len(kvs) == 0 || kvs[0].Lease != int64(s.lease) {
		s.Lose(errors.New("the registration is gone"))
		return fmt.Errorf("%w: the registration is gone", ErrLost)
	}
	s.bumped(kvs[0].ModRevision)
	return nil
}
