package election

import (
	"context"
	"errors"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/keys"
)

// TryLead makes one attempt. It returns a *Leadership, or
//
//   - ErrNotElected when anybody, here or elsewhere, leads or campaigns; nothing was written then;
//   - a *fencing.CoordinationUnavailableError when etcd did not answer or refused. A candidate that
//     the attempt may have left is removed in the background;
//   - the caller's cause, ErrSessionEnded or fencing.ErrInvalidKey as with Lead.
//
// Without a deadline in ctx it takes RequestTimeout at most.
func (e *Elector) TryLead(ctx context.Context, name string) (*Leadership, error) {
	if err := keys.Check("election name", name); err != nil {
		return nil, err
	}
	ctx, cancel := backend.WithTimeout(ctx, e.cfg.RequestTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, fencing.Unavailable(ctx, "try to lead", name, err)
	}
	if err := e.take(ctx, name, true); err != nil {
		return nil, e.notTaken(ctx, "try to lead", name, err)
	}
	own := e.candidate(name)
	won, err := e.tryTaken(ctx, &own)
	switch {
	case err == nil:
		return won, nil
	case errors.Is(err, errDead):
		return nil, e.awaitEnd(ctx, "try to lead", name)
	case errors.Is(err, ErrNotElected), errors.Is(err, ErrSessionEnded):
		return nil, err
	}
	if ended := e.ended(); ended != nil {
		return nil, ended
	}
	return nil, fencing.Unavailable(ctx, "try to lead", name, err)
}

// tryTaken uses the slot, or gives it back.
func (e *Elector) tryTaken(ctx context.Context, own *candidate) (*Leadership, error) {
	if e.cfg.Session.Check() != nil {
		e.letGo(*own)
		return nil, errDead
	}
	request, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	if err := e.enter(request, own, true); err != nil {
		e.letGo(*own)
		return nil, err
	}
	// The put itself is the look at the own key: it was there, alone, as of this answer.
	return e.won(*own)
}
