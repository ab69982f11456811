package etcdcoord

import "time"

// Hooks are called at the moments that a metric wants to count. Each is optional. They are called
// in the middle of the work, from many goroutines: they must be quick and must not block.
type Hooks struct {
	// Reserved: a Reserve took that long and ended with err.
	Reserved func(key string, took time.Duration, err error)
	// TurnGranted: an AcquireTurn got its turn after waiting that long.
	TurnGranted func(key string, waited time.Duration)
	// TurnReleased: a turn was given back after that long.
	TurnReleased func(key string, held time.Duration)
	// TurnLost: a turn ended otherwise.
	TurnLost func(key string, reason LostReason)
	// Renewed: a renewal of the session took that long and ended with err.
	Renewed func(roundTrip time.Duration, err error)
}

func (h Hooks) reserved(key string, took time.Duration, err error) {
	if h.Reserved != nil {
		h.Reserved(key, took, err)
	}
}

func (h Hooks) turnGranted(key string, waited time.Duration) {
	if h.TurnGranted != nil {
		h.TurnGranted(key, waited)
	}
}

func (h Hooks) turnReleased(key string, held time.Duration) {
	if h.TurnReleased != nil {
		h.TurnReleased(key, held)
	}
}

func (h Hooks) turnLost(key string, reason LostReason) {
	if h.TurnLost != nil {
		h.TurnLost(key, reason)
	}
}

func (h Hooks) renewed(roundTrip time.Duration, err error) {
	if h.Renewed != nil {
		h.Renewed(roundTrip, err)
	}
}
