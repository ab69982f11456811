package tickets

import (
	"errors"

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
