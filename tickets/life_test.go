package tickets_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/keys"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// life is one key's story: a (whose requests go wrong) and b take turns, a cancels, a stops, and c
// comes when all is over.
type life struct {
	client *clientv3.Client
	prefix string
	a      *tap
	audits bool // are needed; else there are none, so that nothing is left to them
	judge  judge
}

func newLife(t *testing.T, client *clientv3.Client, prepare func(*tap)) *life {
	l := &life{client: client, prefix: testetcd.Prefix(t), a: &tap{base: client}}
	prepare(l.a)
	return l
}

const key = "chat 1"

func (l *life) live(ctx context.Context) error {
	tapB, tapC := &tap{base: l.client}, &tap{base: l.client}
	if !l.audits {
		for _, tp := range []*tap{l.a, tapB, tapC} {
			tp.every("audit", drop)
		}
	}
	b, err := open(ctx, tapB, l.prefix, "b")
	if err != nil {
		return err
	}
	c, err := open(ctx, tapC, l.prefix, "c")
	if err != nil {
		return errors.Join(err, b.stop(ctx))
	}
	a, err := l.openA(ctx)
	if err == nil {
		err = errors.Join(l.turns(ctx, a, b), l.settles(ctx, a, c), a.stop(ctx))
	}
	err = errors.Join(err, l.turnOf(ctx, c), b.stop(ctx), c.stop(ctx))
	l.a.deliver(ctx)
	return errors.Join(err, l.onlyRecordsRemain(ctx))
}

// openA starts a, and again if that fails, as a bot does.
func (l *life) openA(ctx context.Context) (a *replica, err error) {
	for range 4 {
		if a, err = open(ctx, l.a, l.prefix, "a"); err == nil {
			return a, nil
		}
	}
	return nil, err
}

// turns: a, b, a, b and a again are in line; the last one is cancelled.
func (l *life) turns(ctx context.Context, a, b *replica) error {
	inLine := make(chan struct{})
	var group errgroup.Group
	var last *tickets.Ticket
	var before fencing.Token
	for i, r := range []*replica{a, b, a, b, a} {
		ticket, err := l.reserve(ctx, r)
		if err != nil {
			close(inLine)
			return errors.Join(err, group.Wait())
		}
		if ticket == nil {
			continue // a has lost its session
		}
		if ticket.Fence() <= before {
			return fmt.Errorf("fence %d was reserved after %d", ticket.Fence(), before)
		}
		before = ticket.Fence()
		if i == 4 {
			last = ticket
			continue
		}
		group.Go(func() error { return l.use(ctx, r, ticket, inLine) })
	}
	var err error
	if last != nil {
		err = l.allowed(a, last.Cancel(ctx))
	}
	close(inLine)
	return errors.Join(err, group.Wait())
}

// reserve tries again after an error, as a platform that redelivers does. A nil ticket: the session
// is over.
func (l *life) reserve(ctx context.Context, r *replica) (*tickets.Ticket, error) {
	for range 5 {
		ticket, err := r.Reserve(ctx, key)
		switch {
		case err == nil:
			return ticket, nil
		case r.tap != l.a:
			return nil, fmt.Errorf("a healthy replica cannot reserve: %w", err)
		case errors.Is(err, tickets.ErrEpochEnded):
			return nil, nil
		}
		if err := l.allowed(r, err); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("no place after five tries")
}

// use is what a handler does with a ticket.
func (l *life) use(ctx context.Context, r *replica, ticket *tickets.Ticket, inLine <-chan struct{}) error {
	turn, err := ticket.Acquire(ctx)
	if err != nil {
		return l.allowed(r, err)
	}
	if err := l.judge.enter(r, turn); err != nil {
		return err
	}
	if err := await(ctx, inLine); err != nil {
		return err
	}
	l.judge.exit(turn)
	return l.allowed(r, turn.Release(ctx))
}

// allowed lets those errors pass that a's misfortune may cause: typed ones.
func (l *life) allowed(r *replica, err error) error {
	var u *fencing.CoordinationUnavailableError
	var gone *fencing.LeaseLostError
	switch {
	case err == nil:
		return nil
	case r.tap != l.a:
		return fmt.Errorf("an error at a healthy replica: %w", err)
	case errors.As(err, &u), errors.As(err, &gone) && r.session.Err() != nil:
		return nil
	}
	return fmt.Errorf("an error without a type: %w", err)
}

// settles: soon, and again after whatever was late has arrived, nothing of a is left and a third
// replica gets its turn.
func (l *life) settles(ctx context.Context, a, c *replica) error {
	for range 2 {
		if err := l.turnOf(ctx, c); err != nil {
			return err
		}
		if err := l.nothingLeft(ctx, a); err != nil {
			return err
		}
		l.a.deliver(ctx)
	}
	return nil
}

// soonEnough is how long a third replica may have to wait because of one lost request: for two
// audits, on a busy machine.
const soonEnough = 15 * time.Second

func (l *life) turnOf(ctx context.Context, c *replica) error {
	ctx, cancel := context.WithTimeout(ctx, soonEnough)
	defer cancel()
	ticket, err := c.Reserve(ctx, key)
	if err != nil {
		return fmt.Errorf("the third replica cannot reserve: %w", err)
	}
	turn, err := ticket.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("the third replica gets no turn: %w", err)
	}
	if err := l.judge.enter(c, turn); err != nil {
		return err
	}
	l.judge.exit(turn)
	return turn.Release(ctx)
}

func (l *life) nothingLeft(ctx context.Context, a *replica) error {
	if a.session.Err() != nil {
		if err := a.stop(ctx); err != nil { // as healing does: the lease takes along what was left
			return err
		}
	}
	for {
		answer, err := l.client.Get(ctx, keys.New(l.prefix).Tickets(key), clientv3.WithPrefix())
		if err != nil {
			return err
		}
		if len(answer.Kvs) == 0 && a.Counts() == (tickets.Counts{}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("left in etcd: %v, and here: %+v", answer.Kvs, a.Counts())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// onlyRecordsRemain: when all replicas have stopped, the record of who was last is all that is left.
func (l *life) onlyRecordsRemain(ctx context.Context) error {
	answer, err := l.client.Get(ctx, l.prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range answer.Kvs {
		if string(kv.Key) != keys.New(l.prefix).Holder(key) {
			err = errors.Join(err, fmt.Errorf("%s is left in etcd", kv.Key))
		}
	}
	return err
}
