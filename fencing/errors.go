package fencing

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/andresayac/botmesh-etcd/internal/keys"
)

// Sentinels, for errors.Is.
var (
	// ErrLeaseLost matches every *LeaseLostError.
	ErrLeaseLost = errors.New("lease lost")
	// ErrUnavailable matches every *CoordinationUnavailableError.
	ErrUnavailable = errors.New("coordination unavailable")
	// ErrHeld matches every *HeldError: somebody else holds the key now. Not a failure: try again later.
	ErrHeld = errors.New("held by another owner")
	// ErrInvalidKey says that a key, name, owner or id cannot be one: it is empty, has more than
	// 512 bytes, is not UTF-8 or contains a NUL byte.
	ErrInvalidKey = keys.ErrInvalid
	// ErrInvalidTTL says that a time to live is zero, negative, or longer than MaxTTL.
	ErrInvalidTTL = errors.New("invalid TTL")
	// ErrInvalidConfig says that a LeaseConfig, or the client beside it, cannot be used.
	ErrInvalidConfig = errors.New("invalid configuration")
	// ErrClosed says that Close was called before, or did not wait any longer: make a new provider.
	ErrClosed = errors.New("lease provider is closed")
	// ErrStaleToken matches every *StaleTokenError: a newer holder has been seen already, and the
	// caller's work must not be written.
	ErrStaleToken = errors.New("stale fence token")
)

// LostReason tells why something held was lost.
type LostReason string

// The reasons of a LeaseLostError.
const (
	Superseded LostReason = "superseded" // skipped in the queue: this replica was presumed dead
	Expired    LostReason = "expired"    // not renewed inside the trust window, or etcd says the lease is gone
	Evicted    LostReason = "evicted"    // its key was removed from outside (operator, force release)
	MaxHold    LostReason = "max-hold"   // held longer than Config.MaxHold
	Stopped    LostReason = "stopped"    // this coordinator was stopped
)

// LeaseLostError says that a turn, leadership, ticket or lease is no longer this process's. It is
// the context.Cause of what was held, and it is reported before anybody else can be granted the
// key. Work must stop; what is written all the same must carry the fence and will be refused.
type LeaseLostError struct {
	Key    string // the key, election name or lease key
	Token  Token  // the fence it was held under, 0 if it never was
	Reason LostReason
	Err    error // what led to it, may be nil
}

// Error names the key, the fence, the reason and what led to it.
func (e *LeaseLostError) Error() string {
	msg := fmt.Sprintf("lease lost: %q (fence %d): %s", e.Key, e.Token, e.Reason)
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Unwrap gives what led to the loss.
func (e *LeaseLostError) Unwrap() error { return e.Err }

// Is matches ErrLeaseLost.
func (e *LeaseLostError) Is(target error) bool { return target == ErrLeaseLost }

// HeldError says who holds a key that another owner asked for.
type HeldError struct {
	Key   string
	Owner string        // who holds it; empty if what stands in etcd cannot be read
	Token Token         // the fence it is held under
	TTL   time.Duration // what the holder asked for last: it ends within this time unless renewed. 0 if not known
	Err   error         // what is wrong with the record in etcd, usually nil
}

// Error names the key, the holder, the fence and for about how long.
func (e *HeldError) Error() string {
	owner := "somebody unknown"
	if e.Owner != "" {
		owner = strconv.Quote(e.Owner)
	}
	msg := fmt.Sprintf("%q is held by %s (fence %d)", e.Key, owner, e.Token)
	if e.TTL > 0 {
		msg += fmt.Sprintf(" for up to %v unless renewed", e.TTL)
	}
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Unwrap gives what is wrong with the record.
func (e *HeldError) Unwrap() error { return e.Err }

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// StaleTokenError says that a Watermark refused a token.
type StaleTokenError struct {
	Key     string
	Token   Token // refused
	Highest Token // admitted before, 0 if none
}

// Error names the key and both tokens.
func (e *StaleTokenError) Error() string {
	if e.Token <= 0 {
		return fmt.Sprintf("stale fence token: %q: %d is never granted", e.Key, e.Token)
	}
	return fmt.Sprintf("stale fence token: %q: %d is older than %d, which was seen before; drop the work", e.Key, e.Token, e.Highest)
}

// Is matches ErrStaleToken.
func (e *StaleTokenError) Is(target error) bool { return target == ErrStaleToken }

// UnavailableReason tells why etcd could not be asked.
type UnavailableReason string

// The reasons of a CoordinationUnavailableError.
const (
	Timeout UnavailableReason = "timeout"  // the caller's deadline or RequestTimeout
	Backend UnavailableReason = "backend"  // etcd failed or cannot be reached
	NoSpace UnavailableReason = "no-space" // etcd's quota is used up; an operator must compact, defragment and disarm
	Denied  UnavailableReason = "denied"   // authentication or permission
)

// CoordinationUnavailableError says that nothing is known or done because etcd did not play
// along. Whatever the lost request may have left in etcd is cleaned up in the background.
type CoordinationUnavailableError struct {
	Op     string // the verb that failed, "reserve" or "renew"
	Key    string // may be empty
	Reason UnavailableReason
	Err    error // wraps context.DeadlineExceeded and the caller's cause when Reason is Timeout
}

// Error names the verb, the key, the reason and the error below.
func (e *CoordinationUnavailableError) Error() string {
	msg := "coordination unavailable: " + e.Op
	if e.Key != "" {
		msg += fmt.Sprintf(" %q", e.Key)
	}
	msg += ": " + string(e.Reason)
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Unwrap gives the error below.
func (e *CoordinationUnavailableError) Unwrap() error { return e.Err }

// Is matches ErrUnavailable.
func (e *CoordinationUnavailableError) Is(target error) bool { return target == ErrUnavailable }
