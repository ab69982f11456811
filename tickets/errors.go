package tickets

import (
	"context"
	"errors"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/hold"
)

var (
	// ErrReleased says that the turn was given back by its owner.
	ErrReleased = hold.ErrReleased
	// ErrTicketSpent says that the ticket was used before: acquired, cancelled or failed. Reserve another.
	ErrTicketSpent = errors.New("ticket is spent")
	// ErrForeignTicket says that the ticket is nil or another coordinator's.
	ErrForeignTicket = errors.New("not a ticket of this coordinator")
	// ErrEpochEnded says that the session ended before a place was taken. Nothing of the attempt
	// survives the session's lease; try again in the next epoch.
	ErrEpochEnded = errors.New("the session has ended")
)

// unconfirmed is what a verb that gives something back returns when etcd has not confirmed it in
// time. last is the error of the last attempt, if there was one.
func unconfirmed(ctx context.Context, op, key string, last error) error {
	u := &fencing.CoordinationUnavailableError{Op: op, Key: key, Reason: fencing.Timeout}
	switch kind := backend.Classify(last); {
	case kind == backend.Denied:
		u.Reason = fencing.Denied
	case kind == backend.NoSpace:
		u.Reason = fencing.NoSpace
	case ctx.Err() == nil:
		u.Reason = fencing.Backend // there was time yet: the epoch has ended
	}
	u.Err = errors.Join(context.Cause(ctx), last, errors.New("not confirmed; it goes on in the background"))
	return u
}
