package etcdcoord

import (
	"context"
	"sync"

	"github.com/andresayac/botmesh-etcd/election"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/clock"
	"github.com/andresayac/botmesh-etcd/internal/janitor"
	"github.com/andresayac/botmesh-etcd/internal/peers"
	"github.com/andresayac/botmesh-etcd/internal/session"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// epoch is everything that lives and dies with one session. It is replaced whole.
type epoch struct {
	session *session.Session
	janitor *janitor.Janitor
	queue   *tickets.Queue
	elector *election.Elector

	quit context.CancelFunc // ends the watch on peers
	wg   sync.WaitGroup
}

// jobs is how many requests the janitor has under way at most.
const jobs = 256

// openEpoch makes a session and what lives in it. After an error nothing of it is left.
func (c *Coordinator) openEpoch(ctx context.Context, known *peers.Known) (*epoch, error) {
	s, err := session.Open(ctx, session.Config{
		Client: c.client, Schema: c.schema, ReplicaID: c.cfg.ReplicaID, Incarnation: c.incarnation, Started: c.born,
		TTL: c.cfg.SessionTTL, RenewEvery: c.cfg.RenewEvery, Margin: c.cfg.SafetyMargin,
		RequestTimeout: c.cfg.RequestTimeout, Logger: c.cfg.Logger, Clock: clock.System, Renewed: c.renewed,
	})
	if err != nil {
		return nil, err
	}
	e := &epoch{session: s, janitor: janitor.New(jobs)}
	e.queue = tickets.New(tickets.Config{
		Client: c.client, Schema: c.schema, Session: s, Janitor: e.janitor, History: c.history,
		ReplicaID: c.cfg.ReplicaID, Incarnation: c.incarnation, MaxHold: c.cfg.MaxHold,
		RequestTimeout: c.cfg.RequestTimeout, Logger: c.cfg.Logger, Events: c.turnEvents(),
	})
	e.elector = election.New(election.Config{
		Client: c.client, Schema: c.schema, Session: s, Janitor: e.janitor, ReplicaID: c.cfg.ReplicaID,
		RequestTimeout: c.cfg.RequestTimeout, Logger: c.cfg.Logger,
		Gained: c.leadershipGained, Lost: c.leadershipLost,
	})
	if err := e.start(ctx, c, known); err != nil {
		e.session.End(err)
		e.end(fencing.Stopped, err, nil)
		e.close()
		s.Abandon()
		return nil, err
	}
	return e, nil
}

// start opens the two watches and waits until both are open: from then on no trigger is missed.
func (e *epoch) start(ctx context.Context, c *Coordinator, known *peers.Known) error {
	life, quit := context.WithCancel(context.Background())
	e.quit = quit
	built := make(chan struct{})
	var once sync.Once
	e.wg.Go(func() {
		peers.Follow(life, peers.Config{
			Client: c.client, Schema: c.schema, ReplicaID: c.cfg.ReplicaID,
			RequestTimeout: c.cfg.RequestTimeout, Logger: c.cfg.Logger,
			Known: known,
			Rebuilt: func() {
				once.Do(func() { close(built) })
				e.queue.TriggerAll()
			},
			Joined: func(p peers.Peer) { c.replicaJoined(p.Replica) },
			Left: func(p peers.Peer, revision int64, crashed bool) {
				e.queue.TriggerAll() // its tickets went in the same revision
				if crashed {
					e.queue.ReplicaDied(p.Replica, p.Lease, revision)
				}
				c.replicaLeft(p.Replica, crashed)
			},
		})
	})
	wait, cancel := backend.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	if err := e.queue.Start(wait); err != nil {
		return err
	}
	select {
	case <-built:
		return nil
	case <-e.session.Done():
		return e.session.Err()
	case <-wait.Done():
		return context.Cause(wait)
	}
}

// end ends what is held, in this order: first every context, so that nobody works on when, later,
// the lease is gone and others are granted what was held.
func (e *epoch) end(reason fencing.LostReason, cause, stopped error) {
	e.queue.End(reason, cause, stopped)
	e.elector.End(reason, cause)
}

// close ends and waits for all goroutines of the epoch. Call end before.
func (e *epoch) close() {
	e.quit()
	e.janitor.Close()
	e.queue.Close()
	e.elector.Close()
	e.session.Wait()
	e.wg.Wait()
}
