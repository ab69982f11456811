package etcdcoord

import (
	"errors"
	"fmt"

	"github.com/andresayac/botmesh-etcd/election"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/internal/session"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// What the verbs return, for errors.Is.
var (
	// ErrNotStarted says that Start has not been called, or has failed.
	ErrNotStarted = errors.New("coordinator is not started")
	// ErrStopped says that Stop was called: nothing more is granted until Start.
	ErrStopped = errors.New("coordinator is stopped")
	// ErrInvalidConfig matches every *ConfigError.
	ErrInvalidConfig = fencing.ErrInvalidConfig

	ErrNotElected     = election.ErrNotElected
	ErrReleased       = tickets.ErrReleased
	ErrTicketSpent    = tickets.ErrTicketSpent
	ErrForeignTicket  = tickets.ErrForeignTicket
	ErrReplicaIDInUse = session.ErrReplicaIDInUse

	ErrLeaseLost   = fencing.ErrLeaseLost
	ErrUnavailable = fencing.ErrUnavailable
	ErrHeld        = fencing.ErrHeld
	ErrInvalidKey  = fencing.ErrInvalidKey
	ErrInvalidTTL  = fencing.ErrInvalidTTL
	ErrStaleToken  = fencing.ErrStaleToken
)

// Types of the packages below, so that a bot needs one import.
type (
	// Ticket is a place in a key's queue: Key, Fence, Cancel. See tickets.Ticket.
	Ticket = tickets.Ticket
	// Turn is the right to run a key's work: Key, Fence, Context, Bind, AssertHeld, Guard,
	// PreviousHolder, Warm, Release. See tickets.Turn.
	Turn = tickets.Turn
	// ReserveOption changes one Reserve: WithNote.
	ReserveOption = tickets.ReserveOption
	// Leadership is a role held: Name, Fence, Context, Bind, AssertHeld, Guard, Resign. See
	// election.Leadership.
	Leadership = election.Leadership

	// Token is a fence: a number that rises with every grant of a key. See fencing.Token.
	Token = fencing.Token
	// LeaseProvider has Acquire, Renew and Release; its laws are at fencing.LeaseProvider.
	LeaseProvider = fencing.LeaseProvider
	// LeaseGrant is what it gives: Key, Owner, Token, Until, Left. See fencing.LeaseGrant.
	LeaseGrant = fencing.LeaseGrant
	// LostReason is one of Superseded, Expired, Evicted, MaxHold, Stopped.
	LostReason = fencing.LostReason

	// LeaseLostError has Key, Token, Reason and Err. See fencing.LeaseLostError.
	LeaseLostError = fencing.LeaseLostError
	// CoordinationUnavailableError has Op, Key, Reason and Err. See fencing.CoordinationUnavailableError.
	CoordinationUnavailableError = fencing.CoordinationUnavailableError
	// UnavailableReason is one of Timeout, Backend, NoSpace, Denied.
	UnavailableReason = fencing.UnavailableReason
	// ReplicaIDInUseError names the other process: ReplicaID, Host, PID, Started.
	ReplicaIDInUseError = session.ReplicaIDInUseError
)

// Reasons of a LeaseLostError and of a CoordinationUnavailableError.
const (
	Superseded = fencing.Superseded
	Expired    = fencing.Expired
	Evicted    = fencing.Evicted
	MaxHold    = fencing.MaxHold
	Stopped    = fencing.Stopped

	Timeout = fencing.Timeout
	Backend = fencing.Backend
	NoSpace = fencing.NoSpace
	Denied  = fencing.Denied
)

// WithNote attaches a text for operators to a ticket; see tickets.WithNote.
func WithNote(note string) ReserveOption { return tickets.WithNote(note) }

// ConfigError says which field of a Config cannot be used, and why. A bad ReplicaID is an
// ErrInvalidKey as well.
type ConfigError struct {
	Field string
	Err   error
}

// Error names the field and what is wrong with it.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("%v: %s: %v", ErrInvalidConfig, e.Field, e.Err)
}

// Unwrap gives what is wrong.
func (e *ConfigError) Unwrap() error { return e.Err }

// Is matches ErrInvalidConfig.
func (e *ConfigError) Is(target error) bool { return target == ErrInvalidConfig }
