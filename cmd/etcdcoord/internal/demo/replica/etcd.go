package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

// startWithin bounds the start, beyond the TTL that a dead predecessor with our id has to expire.
const startWithin = time.Minute

// retryStart is the pause before the next attempt when etcd did not answer.
const retryStart = 200 * time.Millisecond

// byEtcd is the coordinator that the demo is about.
type byEtcd struct {
	*etcdcoord.Coordinator
	ttl time.Duration
}

// newEtcd makes it. event is told what is worth showing.
func newEtcd(client *clientv3.Client, cfg Config, log *slog.Logger, event func(string)) (coordinator, error) {
	c, err := etcdcoord.New(client, etcdcoord.Config{
		ReplicaID: cfg.ID, Prefix: cfg.Etcd.Prefix, SessionTTL: cfg.TTL, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	etcdcoord.On(c, func(e etcdcoord.SessionLost) { event(e.Err.Error()) })
	etcdcoord.On(c, func(e etcdcoord.SessionRestored) {
		event(fmt.Sprintf("session restored after %v", e.Gap.Round(10*time.Millisecond)))
	})
	etcdcoord.On(c, func(e etcdcoord.TurnLost) {
		event(fmt.Sprintf("turn of chat %s lost (fence %d)", e.Key, e.Fence))
	})
	skipped := &skips{event: event}
	etcdcoord.On(c, func(e etcdcoord.TicketSkipped) { skipped.add(e.Replica, e.Key) })
	return byEtcd{c, cfg.TTL}, nil
}

func (b byEtcd) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.ttl+startWithin)
	defer cancel()
	for {
		err := b.Coordinator.Start(ctx)
		if !errors.Is(err, etcdcoord.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		pause(ctx, retryStart) // etcd may be choosing a leader
	}
}

func (b byEtcd) Reserve(ctx context.Context, key string) (ticket, error) {
	t, err := b.Coordinator.Reserve(ctx, key)
	if err != nil {
		return nil, err // not a nil *Ticket in an interface
	}
	return etcdTicket{t, b.Coordinator}, nil
}

func (b byEtcd) Lead(ctx context.Context, name string) (leadership, error) {
	l, err := b.Coordinator.Lead(ctx, name)
	if err != nil {
		return nil, err
	}
	return l, nil
}

type etcdTicket struct {
	*etcdcoord.Ticket
	c *etcdcoord.Coordinator
}

func (t etcdTicket) Acquire(ctx context.Context) (turn, error) {
	held, err := t.c.AcquireTurn(ctx, t.Ticket)
	if err != nil {
		return nil, err
	}
	return held, nil
}

// skips gathers what is told about one dead replica: each of our waiting tickets has an event of
// its own for each dead ticket before it.
type skips struct {
	event func(string)

	mu    sync.Mutex                 // guards chats
	chats map[string]map[string]bool // dead replica -> chats; present while a line about it is due
}

// gather is how long to wait for more about the same replica.
const gather = 300 * time.Millisecond

func (s *skips) add(replica, chat string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chats == nil {
		s.chats = make(map[string]map[string]bool)
	}
	if s.chats[replica] == nil {
		s.chats[replica] = make(map[string]bool)
		time.AfterFunc(gather, func() { s.tell(replica) })
	}
	s.chats[replica][chat] = true
}

func (s *skips) tell(replica string) {
	s.mu.Lock()
	chats := slices.Sorted(maps.Keys(s.chats[replica]))
	delete(s.chats, replica)
	s.mu.Unlock()
	s.event(fmt.Sprintf("passed over %s's dead tickets in chat %s", replica, strings.Join(chats, ", ")))
}
