package etcdcoord

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/election"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/keys"
	"github.com/andresayac/botmesh-etcd/internal/relay"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// Coordinator is one replica's part in the coordination. Make it with New, share it, and Stop it
// before the process ends. It is safe for concurrent use.
type Coordinator struct {
	client      *clientv3.Client
	cfg         Config
	schema      keys.Schema
	incarnation string
	born        time.Time
	history     *tickets.History
	leases      *leases
	events      relay.Relay[Event]
	counters    counters

	lifecycle chan struct{} // one token: whoever has it may start or stop
	down      *takedown     // the last Stop's, until it is confirmed; for whoever has the token

	mu      sync.Mutex // guards the fields below
	state   state
	epoch   *epoch        // nil while there is none to believe in
	changed chan struct{} // closed, and made anew, whenever state or epoch change
	run     *run          // what Start started; nil when nothing runs
	lostErr error         // why there is no epoch: how the last one ended, or why there is no next one
	cluster uint64        // id of the etcd cluster as the last epoch saw it
	highest int64         // highest revision that epoch saw

	starts   map[*context.CancelCauseFunc]struct{} // each aborts a Start under way
	stopping int                                   // Stop calls that wait for the lifecycle token
}

type state string

const (
	isNew     state = "new"
	isRunning state = "running"
	isStopped state = "stopped"
)

// New checks cfg and makes a Coordinator that uses client. It makes no request, and never closes
// the client. Errors: *ConfigError, which names the field.
func New(client *clientv3.Client, cfg Config) (*Coordinator, error) {
	if client == nil {
		return nil, &ConfigError{"client", errors.New("is nil")}
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	c := &Coordinator{
		client:      client,
		cfg:         cfg,
		schema:      keys.New(cfg.Prefix),
		incarnation: randomHex(8),
		born:        time.Now(),
		history:     tickets.NewHistory(client, cfg.HistoryTTL, cfg.RequestTimeout),
		lifecycle:   make(chan struct{}, 1),
		state:       isNew,
		changed:     make(chan struct{}),
		starts:      make(map[*context.CancelCauseFunc]struct{}),
	}
	c.leases = &leases{c: c}
	return c, nil
}

// ReplicaID is the id of this replica, the generated one if none was configured.
func (c *Coordinator) ReplicaID() string { return c.cfg.ReplicaID }

// Reserve takes a place in key's queue across all replicas. If one Reserve returned before another
// was called, on any replicas, its ticket is earlier. It costs one round trip to etcd.
//
// Call it in the order in which messages come in, before acknowledging them, and AcquireTurn
// afterwards, on any goroutine. A ticket that is not used must be given up with Ticket.Cancel.
//
// Errors: ErrInvalidKey; ErrNotStarted; ErrStopped; *CoordinationUnavailableError, after which a
// place that was perhaps taken is given up in the background, for certain; the cause of a
// cancelled ctx, likewise.
func (c *Coordinator) Reserve(ctx context.Context, key string, opts ...ReserveOption) (*Ticket, error) {
	begun := time.Now()
	t, err := c.reserve(ctx, key, opts)
	c.cfg.Hooks.reserved(key, time.Since(begun), err)
	return t, err
}

func (c *Coordinator) reserve(ctx context.Context, key string, opts []ReserveOption) (*Ticket, error) {
	if err := keys.Check("key", key); err != nil {
		return nil, err
	}
	ctx, cancel := backend.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	for {
		e, err := c.current(ctx, "reserve", key)
		if err != nil {
			return nil, err
		}
		// A place in an epoch that has ended goes with its lease, so reserving again is safe.
		if t, err := e.queue.Reserve(ctx, key, opts...); !errors.Is(err, tickets.ErrEpochEnded) {
			return t, err
		}
	}
}

// AcquireTurn waits for the ticket's turn. Tickets of dead replicas are skipped and cancelled ones
// leave at once. Waiting has no limit but ctx, and ctx is only for the waiting: it does not end the turn.
//
// Errors, after each of which the ticket is spent and withdrawn: *LeaseLostError with Superseded
// when the ticket is gone, because the session ended or somebody removed it; ErrStopped;
// *CoordinationUnavailableError on ctx's deadline (it wraps context.DeadlineExceeded) or when etcd
// refuses; the cause of a cancelled ctx. ErrTicketSpent and ErrForeignTicket change nothing.
func (c *Coordinator) AcquireTurn(ctx context.Context, t *Ticket) (*Turn, error) {
	if !t.Belongs(c.history) {
		return nil, ErrForeignTicket
	}
	return t.Acquire(ctx)
}

// Lead campaigns for the role name until it is elected, ctx ends or the coordinator stops. ctx is
// only for the waiting. If the session is lost meanwhile, it goes on in the next one.
//
// Errors: ErrInvalidKey; ErrNotStarted; ErrStopped; *CoordinationUnavailableError on ctx's
// deadline or when etcd refuses; the cause of a cancelled ctx. Nothing stays in etcd after them.
func (c *Coordinator) Lead(ctx context.Context, name string) (*Leadership, error) {
	return c.elect(ctx, "lead", name, (*election.Elector).Lead)
}

// TryLead makes one attempt, and leaves nothing in etcd when it loses. ErrNotElected says that
// another leads, or that this replica campaigns or leads already: no failure, for most replicas
// the usual answer. Other errors as those of Lead.
func (c *Coordinator) TryLead(ctx context.Context, name string) (*Leadership, error) {
	ctx, cancel := backend.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	return c.elect(ctx, "try to lead", name, (*election.Elector).TryLead)
}

func (c *Coordinator) elect(ctx context.Context, op, name string,
	attempt func(*election.Elector, context.Context, string) (*Leadership, error),
) (*Leadership, error) {
	if err := keys.Check("election name", name); err != nil {
		return nil, err
	}
	for {
		e, err := c.current(ctx, op, name)
		if err != nil {
			return nil, err
		}
		if l, err := attempt(e.elector, ctx, name); !errors.Is(err, election.ErrSessionEnded) {
			return l, err
		}
	}
}

// Leases is the LeaseProvider under this coordinator's prefix. Its leases belong to their owner
// string, not to this replica's session: they outlive Stop. Its verbs return ErrNotStarted and
// ErrStopped like all others.
func (c *Coordinator) Leases() LeaseProvider { return c.leases }

// current is the epoch to work in. While there is none it waits for the next one, as long as ctx allows.
func (c *Coordinator) current(ctx context.Context, op, key string) (*epoch, error) {
	if ctx.Err() != nil {
		return nil, fencing.Unavailable(ctx, op, key, ctx.Err())
	}
	for {
		c.mu.Lock()
		state, e, changed, why := c.state, c.epoch, c.changed, c.lostErr
		c.mu.Unlock()
		if e != nil {
			why = e.session.Check()
		}
		switch {
		case state == isNew:
			return nil, ErrNotStarted
		case state == isStopped:
			return nil, ErrStopped
		case e != nil && why == nil:
			return e, nil
		}
		select {
		case <-changed:
		case <-c.client.Ctx().Done():
			return nil, fencing.Unavailable(ctx, op, key, errClientClosed)
		case <-ctx.Done():
			return nil, fencing.Unavailable(ctx, op, key, fmt.Errorf("no session with etcd at %v (%w): %w", c.client.Endpoints(), why, ctx.Err()))
		}
	}
}

var errClientClosed = errors.New("the etcd client is closed; close it after Stop")

// set changes what verbs see.
func (c *Coordinator) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}
