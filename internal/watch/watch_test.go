package watch_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/watch"
)

const patience = 20 * time.Second

// follower is a Follow that runs until the test ends. Its channels never are full in these tests.
type follower struct {
	opened chan struct{}
	events chan *clientv3.Event
	broken chan error
	refuse atomic.Pointer[error] // what Opened answers
	done   chan struct{}
	stop   context.CancelFunc
}

func follow(t *testing.T, client *clientv3.Client, prefix string, limit time.Duration, refuse ...error) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{
		opened: make(chan struct{}, 1000), events: make(chan *clientv3.Event, 10_000), broken: make(chan error, 1000),
		done: make(chan struct{}), stop: cancel,
	}
	if len(refuse) > 0 {
		f.refuse.Store(&refuse[0])
	}
	go func() {
		defer close(f.done)
		watch.Follow(ctx, client, prefix, limit, watch.Follower{
			Opened: func(context.Context) error {
				f.opened <- struct{}{}
				if err := f.refuse.Load(); err != nil {
					return *err
				}
				return nil
			},
			Event:  func(e *clientv3.Event) { f.events <- e },
			Broken: func(err error) { f.broken <- err },
		})
	}()
	t.Cleanup(f.end(t))
	return f
}

// end stops following, which must not take long whatever etcd does.
func (f *follower) end(t *testing.T) func() {
	return func() {
		f.stop()
		receive(t, f.done, "the end of Follow")
	}
}

func receive[T any](t *testing.T, ch <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		require.FailNow(t, "waited in vain for "+what)
	}
	return v
}

func put(t *testing.T, client *clientv3.Client, key, value string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer, err := client.Put(ctx, key, value)
	require.NoError(t, err)
	return answer.Header.Revision
}

func TestItTellsChangesInOrderWithWhatWasBefore(t *testing.T) {
	t.Parallel()
	client, prefix := testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	put(t, client, prefix+"before", "x")
	f := follow(t, client, prefix, patience)
	receive(t, f.opened, "the opening")
	for i := range 50 {
		put(t, client, prefix+"k", fmt.Sprint(i))
	}
	_, err := client.Delete(t.Context(), prefix+"k")
	require.NoError(t, err)
	put(t, client, testetcd.Prefix(t)+"other", "x")
	for i := range 50 {
		e := receive(t, f.events, "an event")
		require.Equal(t, prefix+"k", string(e.Kv.Key))
		require.Equal(t, fmt.Sprint(i), string(e.Kv.Value))
	}
	e := receive(t, f.events, "the delete")
	require.Equal(t, clientv3.EventTypeDelete, e.Type)
	require.Equal(t, "49", string(e.PrevKv.Value))
	require.Empty(t, f.broken)
	f.end(t)()
	require.Empty(t, f.events, "nothing of before, and nothing of other prefixes")
}

// A write in the moment of opening is either in a read made by Opened or comes as an event.
func TestNothingIsMissedBetweenTheReadAndTheEvents(t *testing.T) {
	t.Parallel()
	client, prefix := testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := client.Put(t.Context(), prefix+"k", "x"); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		var read, version int64
		seen := 0
		watch.Follow(ctx, client, prefix, patience, watch.Follower{
			Opened: func(ctx context.Context) error {
				answer, err := client.Get(ctx, prefix+"k")
				if err == nil && len(answer.Kvs) > 0 {
					read, version = answer.Header.Revision, answer.Kvs[0].Version
				}
				return err
			},
			Event: func(e *clientv3.Event) {
				if e.Kv.ModRevision <= read {
					return // the read has it already
				}
				if e.Kv.Version != version+1 {
					t.Errorf("version %d came after %d", e.Kv.Version, version)
				}
				version = e.Kv.Version
				if seen++; seen == 5 {
					cancel()
				}
			},
			Broken: func(err error) { t.Error(err) },
		})
	}
	close(stop)
	<-stopped
}

// etcd#9715, #21128: after a cut the client resumes by itself, from a revision that may be gone by then.
func TestAfterACompactionItIsOpenedAgain(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks)
	proxy := faultproxy.Before(t, cluster.Endpoints()[0])
	direct := cluster.Client(t)
	f := follow(t, cluster.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{proxy.Endpoint()} }), "/p/", time.Second)
	receive(t, f.opened, "the opening")
	put(t, direct, "/p/k", "1")
	require.Equal(t, "1", string(receive(t, f.events, "an event").Kv.Value))

	proxy.Down()
	put(t, direct, "/p/k", "missed")
	_, err := direct.Compact(t.Context(), put(t, direct, "/p/k", "missed"))
	require.NoError(t, err)
	proxy.Heal()
	receive(t, f.opened, "another opening, in which the follower reads what it missed")
	require.ErrorIs(t, receive(t, f.broken, "the reason"), rpctypes.ErrCompacted)
	put(t, direct, "/p/k", "2")
	require.Equal(t, "2", string(receive(t, f.events, "an event").Kv.Value))
}

func TestARestartLosesNothing(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks)
	direct := cluster.Client(t)
	f := follow(t, cluster.Client(t), "/p/", 2*time.Second)
	receive(t, f.opened, "the opening")
	for range 3 {
		require.NoError(t, cluster.Member(0).Restart())
		rev := put(t, direct, "/p/k", "x")
		for known := false; !known; { // as an event, or by the read of another opening
			select {
			case e := <-f.events:
				known = e.Kv.ModRevision == rev
			case <-f.opened:
				known = true
			case <-time.After(patience):
				require.FailNow(t, "neither told nor opened again")
			}
		}
	}
}

func TestAFollowerThatCannotReadIsOpenedAgain(t *testing.T) {
	t.Parallel()
	client, prefix := testetcd.Shared(t).Client(t), testetcd.Prefix(t)
	why := errors.New("could not read")
	f := follow(t, client, prefix, patience, why)
	for range 3 {
		receive(t, f.opened, "another opening")
		require.Equal(t, why, receive(t, f.broken, "the reason"))
	}
	f.refuse.Store(nil)
	require.Eventually(t, func() bool {
		put(t, client, prefix+"k", "x")
		return len(f.events) > 0
	}, patience, 10*time.Millisecond, "no event after an opening that was accepted")
}

func TestAnOpeningThatHangsIsGivenUpAndTriedAgain(t *testing.T) {
	t.Parallel()
	cluster, prefix := testetcd.Shared(t), testetcd.Prefix(t)
	proxy := faultproxy.Before(t, cluster.Endpoints()[0])
	client := cluster.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{proxy.Endpoint()} })
	put(t, client, prefix+"k", "x") // connected
	proxy.Hold()
	f := follow(t, client, prefix, 200*time.Millisecond)
	for range 2 {
		require.ErrorIs(t, receive(t, f.broken, "a time-out"), context.DeadlineExceeded)
	}
	require.Empty(t, f.opened)
	proxy.Heal()
	receive(t, f.opened, "the opening")
	put(t, client, prefix+"k", "y")
	receive(t, f.events, "an event")
	<-time.After(400 * time.Millisecond)
	put(t, client, prefix+"k", "z")
	receive(t, f.events, "an event")
	require.Empty(t, f.opened, "the limit is for the opening: an open watch lives on")
}

func TestFollowReturnsByItsContextInABlackHole(t *testing.T) {
	t.Parallel()
	cluster, prefix := testetcd.Shared(t), testetcd.Prefix(t)
	proxy := faultproxy.Before(t, cluster.Endpoints()[0])
	client := cluster.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{proxy.Endpoint()} })
	put(t, client, prefix+"k", "x")
	open := follow(t, client, prefix, time.Minute)
	receive(t, open.opened, "the opening")
	proxy.Hold()
	opening := follow(t, client, prefix, time.Minute)
	began := time.Now()
	open.end(t)()
	opening.end(t)()
	require.Less(t, time.Since(began), 2*time.Second)
	proxy.Heal()
}

// etcd#12385, #14995: etcd checks a new watch on an old stream against the token that the stream was
// opened with.
func TestANewWatchHasAFreshAuthToken(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks, func(cfg *testetcd.Config) { cfg.AuthTokenTTL = time.Second })
	root := cluster.Client(t)
	_, err := root.RoleAdd(t.Context(), "root")
	require.NoError(t, err)
	_, err = root.UserAdd(t.Context(), "root", "pw")
	require.NoError(t, err)
	_, err = root.UserGrantRole(t.Context(), "root", "root")
	require.NoError(t, err)
	_, err = root.AuthEnable(t.Context())
	require.NoError(t, err)
	client := cluster.Client(t, func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "root", "pw" })

	first := follow(t, client, "/p/", patience)
	receive(t, first.opened, "the opening")
	stale := clientv3.WithRequireLeader(t.Context())
	kept := client.Watch(stale, "/p/")  // keeps a stream open under the first token
	require.Eventually(t, func() bool { // until that has run out; using it makes it last longer
		ctx, cancel := context.WithCancel(stale)
		defer cancel()
		answer, ok := <-client.Watch(ctx, "/p/", clientv3.WithCreatedNotify())
		return !ok || answer.Err() != nil
	}, patience, 2500*time.Millisecond, "etcd accepts the old token for ever: this test proves nothing")
	require.Empty(t, kept)

	second := follow(t, client, "/p/", patience)
	receive(t, second.opened, "the opening")
	put(t, client, "/p/k", "x")
	receive(t, second.events, "an event")
	receive(t, first.events, "an event on the old watch")
	require.Empty(t, second.broken)
}
