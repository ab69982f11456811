package etcdcoord_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// errLost is what a client hears of a lost answer. It does not repeat a request by itself after it.
var errLost = status.Error(codes.Unknown, "the answer was lost")

// TestWhicheverAnswerIsLostNothingStaysAndEveryErrorHasAType goes through a replica's life, from
// Start to Stop, and loses another answer, or request, each time.
func TestWhicheverAnswerIsLostNothingStaysAndEveryErrorHasAType(t *testing.T) {
	t.Parallel()
	requests := lose(t, "nothing", func(int64) (bool, error) { return true, nil })
	require.Greater(t, requests, int64(15))
	var group sync.WaitGroup
	room := make(chan struct{}, 8)
	for _, sent := range []bool{true, false} {
		for n := range requests {
			room <- struct{}{}
			group.Go(func() {
				defer func() { <-room }()
				lose(t, fmt.Sprintf("request %d, sent: %v", n+1, sent), func(i int64) (bool, error) {
					if i == n+1 {
						return sent, errLost
					}
					return true, nil
				})
			})
		}
	}
	group.Wait()
}

// lose lives a life in which fault decides about the n-th request, and counts them.
func lose(t *testing.T, what string, fault func(n int64) (bool, error)) int64 {
	b := newBot(t)
	a, w := b.replica("a")
	third, _ := b.started("c")
	var n atomic.Int64
	var methods []string
	var mu sync.Mutex
	w.set(func(_ context.Context, method string, request any) (bool, error) {
		if request == nil {
			return true, nil // a stream
		}
		mu.Lock()
		defer mu.Unlock()
		methods = append(methods, method[strings.LastIndexByte(method, '/')+1:])
		return fault(n.Add(1))
	})
	err := errors.Join(live(within(t, time.Minute), a), serves(within(t, time.Minute), third))
	for range 3 {
		if a.Stop(within(t, patience)) == nil {
			break
		}
	}
	if err == nil {
		err = b.onlyRecordsOf(third)
	}
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		t.Errorf("%s: %v\n%v", what, err, methods)
	}
	return n.Load()
}

// live uses every verb, and again if it fails for a reason that may pass.
func live(ctx context.Context, c *etcdcoord.Coordinator) error {
	if err := retry(func() error { return c.Start(ctx) }); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	for range 2 {
		if err := retry(func() error { return turn(ctx, c) }); err != nil {
			return fmt.Errorf("turn: %w", err)
		}
	}
	if err := retry(func() error {
		ticket, err := c.Reserve(ctx, "k")
		if err != nil {
			return err
		}
		return ticket.Cancel(ctx)
	}); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	if err := retry(func() error {
		l, err := c.Lead(ctx, "role")
		if err != nil {
			return err
		}
		return l.Resign(ctx)
	}); err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	if err := retry(func() error { return c.Stop(ctx) }); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// turn works under a turn for a moment.
func turn(ctx context.Context, c *etcdcoord.Coordinator) error {
	ticket, err := c.Reserve(ctx, "k")
	if err != nil {
		return err
	}
	turn, err := c.AcquireTurn(ctx, ticket)
	if err != nil {
		return err
	}
	return errors.Join(turn.AssertHeld(), turn.Release(ctx))
}

// retry repeats what may be repeated. Any error without a type is final.
func retry(verb func() error) (err error) {
	for range 5 {
		err = verb()
		var u *etcdcoord.CoordinationUnavailableError
		var lost *etcdcoord.LeaseLostError
		if err == nil || !errors.As(err, &u) && !errors.As(err, &lost) {
			return err
		}
	}
	return err
}

// serves: another replica is not kept waiting by what the first one left behind.
func serves(ctx context.Context, c *etcdcoord.Coordinator) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := turn(ctx, c); err != nil {
		return fmt.Errorf("the other replica gets no turn: %w", err)
	}
	l, err := c.Lead(ctx, "role")
	if err != nil {
		return fmt.Errorf("the other replica is not elected: %w", err)
	}
	return l.Resign(ctx)
}

// onlyRecordsOf: nothing is left but the record of the last turn, and what belongs to c.
func (b *bot) onlyRecordsOf(c *etcdcoord.Coordinator) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := b.plain.Get(ctx, b.prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	lease := fmt.Sprintf("%x", c.Stats().LeaseID)
	left := slices.DeleteFunc(answer.Kvs, func(kv *mvccpb.KeyValue) bool {
		key := string(kv.Key)
		return strings.HasSuffix(key, "/holder") || strings.HasSuffix(key, "/replicas/"+c.ReplicaID()) || strings.Contains(key, "/inbox/"+lease)
	})
	if len(left) > 0 {
		return fmt.Errorf("left in etcd: %v", left)
	}
	return nil
}
