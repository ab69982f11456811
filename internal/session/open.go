package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// Open makes a session: it waits until the replica id is free, takes a lease and registers.
//
// Without a deadline in ctx every single request is bounded by Config.RequestTimeout, and waiting
// for a dead predecessor by TTL + RequestTimeout. The error is that of the etcd client, or a
// *ReplicaIDInUseError as soon as the other is seen to renew. After an error nothing of the
// session remains, or nothing but a lease without keys that etcd did not let us revoke.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	wait := ctx
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, cfg.TTL+cfg.RequestTimeout)
		defer cancel()
	}
	for {
		if err := awaitFree(wait, ctx, cfg); err != nil {
			return nil, err
		}
		s, err := grant(ctx, cfg)
		if err != nil {
			return nil, err
		}
		registered, err := s.register(ctx)
		if err == nil && registered {
			return s, nil
		}
		s.Abandon()
		if err != nil {
			return nil, err
		}
		// Somebody was faster. He is now the one to wait for, or to be refused by.
	}
}

// grant takes the lease and starts to keep it.
func grant(ctx context.Context, cfg Config) (*Session, error) {
	request, cancel := backend.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	sent := cfg.Clock()
	// A grant whose answer is lost leaves a lease without keys, which runs out by itself.
	answer, err := cfg.Client.Grant(request, int64(math.Ceil(cfg.TTL.Seconds())))
	if err != nil {
		return nil, fmt.Errorf("grant a lease: %w", err)
	}
	s := &Session{
		cfg:     cfg,
		lease:   answer.ID,
		ttl:     time.Duration(answer.TTL) * time.Second,
		key:     cfg.Schema.Replica(cfg.ReplicaID),
		cluster: answer.GetClusterId(),
		done:    make(chan struct{}),
	}
	s.value = s.describe().encode()
	s.trust = window{margin: cfg.Margin}.renewed(sent, s.ttl)
	life, quit := context.WithCancel(context.Background())
	s.quit = quit
	s.start(life)
	return s, nil
}

// register puts the registration if there is none. false: somebody else has the id now.
func (s *Session) register(ctx context.Context) (bool, error) {
	request, cancel := backend.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	answer, err := s.cfg.Client.Txn(request).
		If(clientv3.Compare(clientv3.CreateRevision(s.key), "=", 0)).
		Then(clientv3.OpPut(s.key, s.value, clientv3.WithLease(s.lease))).
		Else(clientv3.OpGet(s.key)).Commit()
	if err != nil {
		return s.registeredAfterAll(ctx, err)
	}
	s.Saw(answer.Header.Revision)
	if answer.Succeeded {
		s.bumped(answer.Header.Revision)
	}
	return answer.Succeeded, nil
}

// registeredAfterAll finds out what became of a registration whose answer was lost. If it is not
// there, it may still be applied later: Open then revokes the lease, and a put under a revoked
// lease is refused.
func (s *Session) registeredAfterAll(ctx context.Context, lost error) (bool, error) {
	if backend.Classify(lost) == backend.Denied {
		return false, fmt.Errorf("register: %w", lost)
	}
	request, cancel := backend.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	answer, err := s.cfg.Client.Get(request, s.key)
	if err != nil {
		return false, fmt.Errorf("register: %w", lost)
	}
	if len(answer.Kvs) == 0 || string(answer.Kvs[0].Value) != s.value {
		return false, fmt.Errorf("register: %w", lost)
	}
	s.Saw(answer.Header.Revision)
	s.bumped(answer.Kvs[0].ModRevision)
	return true, nil
}

// Abandon ends a session on which nothing was built, and revokes its lease as well as it can.
func (s *Session) Abandon() {
	s.End(ErrLost)
	ctx, cancel := context.WithTimeout(context.Background(), min(backend.DetachedLimit, s.cfg.RequestTimeout))
	defer cancel()
	if err := s.Revoke(ctx); err != nil {
		s.cfg.Logger.Warn("lease of a failed start was not revoked, it will run out",
			"replica", s.cfg.ReplicaID, "ttl", s.ttl, "err", err)
	}
	s.Wait()
}

// Revoke ends the lease in etcd: all that hangs on it goes in one revision, and others go on at
// once. It returns nil only when etcd has confirmed that the lease is gone. Repeating is safe.
func (s *Session) Revoke(ctx context.Context) error {
	_, err := s.cfg.Client.Revoke(ctx, s.lease)
	if backend.Classify(err) == backend.LeaseGone {
		return nil
	}
	return err
}

// MarkStopping says in the registration that what follows is no crash. It is a courtesy to those
// who watch: the caller must not let anything wait for it.
func (s *Session) MarkStopping(ctx context.Context) error {
	key, mod := s.Registration()
	r := s.describe()
	r.Stopping = true
	answer, err := s.cfg.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", mod)).
		Then(clientv3.OpPut(key, r.encode(), clientv3.WithLease(s.lease))).Commit()
	if err == nil && !answer.Succeeded {
		return errors.New("the registration has changed meanwhile")
	}
	return err
}

// Wait returns when the session's goroutines have ended. Call End or Lose first.
func (s *Session) Wait() { s.wg.Wait() }
