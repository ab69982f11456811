package tickets_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/clock"
	"github.com/andresayac/botmesh-etcd/internal/janitor"
	"github.com/andresayac/botmesh-etcd/internal/keys"
	"github.com/andresayac/botmesh-etcd/internal/peers"
	"github.com/andresayac/botmesh-etcd/internal/session"
	"github.com/andresayac/botmesh-etcd/tickets"
)

func TestMain(m *testing.M) {
	// Most tests wait for answers and audits, not for a processor.
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set("16")
	}
	goleak.VerifyTestMain(testetcd.Main(m, testetcd.FastTicks))
}

const (
	// patience bounds what should happen soon on a machine that may be busy.
	patience = 20 * time.Second
	// sessionTTL is long: these tests are not about sessions that die of a busy machine.
	sessionTTL = 30 * time.Second
)

var errStopped = errors.New("this replica was stopped")

// replica is a queue with everything that an epoch of the facade puts around it.
type replica struct {
	*tickets.Queue
	id      string
	tap     *tap
	schema  keys.Schema
	session *session.Session
	janitor *janitor.Janitor
	history *tickets.History

	mu    sync.Mutex
	told  []string      // "granted key fence", "lost key fence reason", …
	held  time.Duration // by the last turn that was released
	quit  context.CancelFunc
	wg    sync.WaitGroup
	ended sync.Once
}

// settings of a replica that a test may change.
type settings struct {
	history, maxHold, request time.Duration
	memory                    *tickets.History // of the process, if it has had a session before
	incarnation               string
}

type option func(*settings)

func historyTTL(d time.Duration) option { return func(s *settings) { s.history = d } }
func maxHold(d time.Duration) option    { return func(s *settings) { s.maxHold = d } }

// processOf makes a replica the next epoch of the process that another one belonged to.
func processOf(r *replica) option {
	return func(s *settings) { s.memory, s.incarnation = r.history, r.id+"-1" }
}

// join starts a replica that ends with the test.
func join(t *testing.T, tp *tap, prefix, id string, opts ...option) *replica {
	t.Helper()
	r, err := open(within(t, patience), tp, prefix, id, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.stop(context.Background())) })
	return r
}

// open starts a replica as the facade starts an epoch. After an error nothing of it is left.
func open(ctx context.Context, tp *tap, prefix, id string, opts ...option) (*replica, error) {
	set := settings{history: time.Hour, request: 5 * time.Second, incarnation: id + "-1"}
	for _, opt := range opts {
		opt(&set)
	}
	client, log := tp.client(), slog.New(slog.DiscardHandler)
	r := &replica{id: id, tap: tp, schema: keys.New(prefix), janitor: janitor.New(16), history: set.memory}
	if r.history == nil {
		r.history = tickets.NewHistory(client, set.history, set.request)
	}
	var err error
	if r.session, err = session.Open(ctx, session.Config{
		Client: client, Schema: r.schema, ReplicaID: id, Incarnation: set.incarnation, Started: time.Now(),
		TTL: sessionTTL, RenewEvery: 10 * time.Second, Margin: time.Second, RequestTimeout: set.request,
		Logger: log, Clock: clock.System, Renewed: func(time.Duration, error) {},
	}); err != nil {
		return nil, err
	}
	r.Queue = tickets.New(tickets.Config{
		Client: client, Schema: r.schema, Session: r.session, Janitor: r.janitor, History: r.history,
		ReplicaID: id, Incarnation: set.incarnation, MaxHold: set.maxHold, RequestTimeout: set.request,
		Logger: log, Events: r.events(),
	})
	life, quit := context.WithCancel(context.Background())
	r.quit = quit
	watched := make(chan struct{}, 1000)
	r.wg.Go(func() { r.followPeers(life, client, set.request, watched) })
	r.wg.Go(func() {
		<-r.session.Done()
		r.End(fencing.Expired, r.session.Err(), nil)
	})
	if err := errors.Join(r.Start(ctx), await(ctx, watched)); err != nil {
		return nil, errors.Join(err, r.stop(ctx))
	}
	return r, nil
}

func (r *replica) followPeers(ctx context.Context, client *clientv3.Client, limit time.Duration, watched chan<- struct{}) {
	peers.Follow(ctx, peers.Config{
		Client: client, Schema: r.schema, ReplicaID: r.id, RequestTimeout: limit, Logger: slog.New(slog.DiscardHandler),
		Rebuilt: func() {
			watched <- struct{}{}
			r.TriggerAll()
		},
		Joined: func(peers.Peer) {},
		Left: func(p peers.Peer, revision int64, crashed bool) {
			r.TriggerAll()
			if crashed {
				r.ReplicaDied(p.Replica, p.Lease, revision)
			}
		},
	})
}

func (r *replica) events() tickets.Events {
	return tickets.Events{
		TurnGranted: func(key string, fence fencing.Token, _ time.Duration) { r.tell("granted %s %d", key, fence) },
		TurnReleased: func(key string, fence fencing.Token, held time.Duration) {
			r.tell("released %s %d", key, fence)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.held = held
		},
		TurnLost: func(key string, fence fencing.Token, err error) {
			var lost *fencing.LeaseLostError
			if !errors.As(err, &lost) {
				lost = &fencing.LeaseLostError{Reason: "not a LeaseLostError"}
			}
			r.tell("lost %s %d %s", key, fence, lost.Reason)
		},
		TicketSkipped: func(key string, fence fencing.Token, replica string) {
			r.tell("skipped %s %d %s", key, fence, replica)
		},
	}
}

func (r *replica) tell(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, fmt.Sprintf(format, args...))
}

func (r *replica) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.told...)
}

// heldFor is how long the last released turn was held.
func (r *replica) heldFor(t *testing.T) time.Duration {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NotZero(t, r.held)
	return r.held
}

// stop ends the replica in the order of the facade: what is held, then the lease, in several
// attempts if need be.
func (r *replica) stop(ctx context.Context) (err error) {
	r.ended.Do(func() { err = r.leave(ctx) })
	return err
}

func (r *replica) leave(ctx context.Context) (err error) {
	r.End(fencing.Stopped, nil, errStopped)
	r.session.End(errStopped)
	mark, cancel := context.WithTimeout(ctx, time.Second)
	_ = r.session.MarkStopping(mark) // a courtesy
	cancel()
	for range 5 {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		err = r.session.Revoke(attempt)
		cancel()
		if err == nil {
			break
		}
	}
	r.quit()
	r.janitor.Close()
	r.Close()
	r.session.Wait()
	r.wg.Wait()
	return err
}

// die is the end of a process that is killed, as etcd sees it: the lease ends, nothing is said.
func (r *replica) die(t *testing.T) {
	t.Helper()
	_, err := r.tap.base.Revoke(within(t, patience), r.session.Lease())
	require.NoError(t, err)
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patience, 2*time.Millisecond, what)
}
