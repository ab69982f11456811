package tickets

import (
	"context"
	"time"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/hold"
)

// Acquire waits for the ticket's turn and takes it. Waiting has no limit but ctx.
//
// Errors, after each of which the ticket is spent and withdrawn: *LeaseLostError{Superseded} when
// the ticket is gone; *CoordinationUnavailableError on ctx's deadline or when etcd refuses; the
// cause of a cancelled ctx; what End was given when the coordinator stops. ErrTicketSpent changes
// nothing.
func (t *Ticket) Acquire(ctx context.Context) (*Turn, error) {
	if t == nil || t.queue == nil {
		return nil, ErrForeignTicket
	}
	q, begun := t.queue, time.Now()
	q.mu.Lock()
	if t.spent {
		q.mu.Unlock()
		return nil, ErrTicketSpent
	}
	t.spent = true
	if l := q.lines[t.key]; l != nil && ctx.Err() == nil {
		q.kickLocked(l)
	}
	q.mu.Unlock()

	// A context that has ended wins over a turn that is there already. Later, whoever comes first wins.
	if ctx.Err() == nil {
		select {
		case <-t.over:
		case <-ctx.Done():
		}
	}
	q.mu.Lock()
	switch {
	case t.state == granted && ctx.Err() == nil:
		return q.take(t, begun)
	case t.state.live():
		// Also when the grant and the end of ctx came together: the caller has given up, and the
		// ticket leaves as one that was never held.
		err := fencing.Unavailable(ctx, "acquire turn", t.key, ctx.Err())
		q.giveUpLocked(t, err)
		q.mu.Unlock()
		return nil, err
	}
	defer q.mu.Unlock()
	return nil, t.err
}

// take hands the turn to the caller. It is called with q.mu held and releases it.
func (q *Queue) take(t *Ticket, begun time.Time) (*Turn, error) {
	// This very moment counts: the window may have ended since the grant was answered.
	if q.cfg.Session.Check() != nil {
		q.mu.Unlock()
		<-t.gone // End follows, and knows whether this is a loss or a stop
		return nil, t.err
	}
	t.state = holding
	q.cfg.History.remember(t.key, t.fence)
	turn := &Turn{
		hold:  hold.New(t.key, fencing.Token(t.fence), q.cfg.Session.Check),
		queue: q, ticket: t, prev: t.prev.Replica, warm: t.warm, since: time.Now(),
	}
	t.turn = turn
	q.mu.Unlock()
	q.cfg.Events.TurnGranted(t.key, fencing.Token(t.fence), turn.since.Sub(begun))
	q.limitHold(turn)
	return turn, nil
}

// limitHold starts MaxHold's clock, after the turn was told about: its end must not be told first.
func (q *Queue) limitHold(turn *Turn) {
	if q.cfg.MaxHold <= 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if turn.ticket.state == holding {
		turn.timer = time.AfterFunc(q.cfg.MaxHold-time.Since(turn.since), func() { q.heldTooLong(turn) })
	}
}

// grantedLocked notes a grant that this replica knows of. From here on the ticket is the turn.
func (q *Queue) grantedLocked(t *Ticket, prev record, warm bool) {
	t.state, t.prev, t.warm, t.dirty = granted, prev, warm, false
	closeIfOpen(t.over)
}

// giveUpLocked withdraws a live ticket that was not held. A grant under way is waited for first,
// in the background, because its answer tells whom the record has to name again.
func (q *Queue) giveUpLocked(t *Ticket, why error) {
	t.err = why
	if t.state != granted {
		t.prev = unknown
	}
	t.state, t.dirty = leaving, false
	l := q.lines[t.key]
	l.drop(t)
	if !t.busy {
		q.cfg.Janitor.Go(func(ctx context.Context) bool { return q.leave(ctx, t) })
	}
	closeIfOpen(t.over)
	q.kickLocked(l)
}

// lostLocked takes a live ticket out of the line whose key is gone from etcd.
func (q *Queue) lostLocked(t *Ticket, why error) {
	if t.state != holding {
		t.err = &fencing.LeaseLostError{Key: t.key, Token: fencing.Token(t.fence), Reason: fencing.Superseded, Err: why}
	}
	l := q.lines[t.key]
	q.freeLocked(t)
	q.triggerLocked(l) // the next one in line here may be head now
}
