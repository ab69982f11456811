package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"time"
)

// ErrReplicaIDInUse matches every *ReplicaIDInUseError.
var ErrReplicaIDInUse = errors.New("replica id in use")

// ReplicaIDInUseError says who else, alive, has this replica id.
type ReplicaIDInUseError struct {
	ReplicaID string
	Host      string
	PID       int // 0, and no Host: the registration in the way cannot be read
	Started   time.Time
}

// Error names the other process, if its registration can be read.
func (e *ReplicaIDInUseError) Error() string {
	if e.PID == 0 && e.Host == "" {
		return fmt.Sprintf("%v: the registration of %q cannot be read and stays as long as its etcd lease; "+
			"delete it, wait for it to end, or choose another ReplicaID", ErrReplicaIDInUse, e.ReplicaID)
	}
	return fmt.Sprintf("%v: %q is process %d on host %q, started %s; stop it or choose another ReplicaID",
		ErrReplicaIDInUse, e.ReplicaID, e.PID, e.Host, e.Started.Format(time.RFC3339))
}

// Is matches ErrReplicaIDInUse.
func (e *ReplicaIDInUseError) Is(target error) bool { return target == ErrReplicaIDInUse }

// Registration is the value of a replica's key. Others read it: the layout is a wire format.
type Registration struct {
	Incarnation string    `json:"incarnation"`
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	Started     time.Time `json:"started"`
	Version     string    `json:"version"`
	Lease       string    `json:"lease"` // hex, as in ticket keys
	Stopping    bool      `json:"stopping,omitempty"`
}

// ParseRegistration reads a registration. ok is false for what no replica of ours wrote.
func ParseRegistration(value []byte) (r Registration, lease int64, ok bool) {
	if json.Unmarshal(value, &r) != nil || r.Incarnation == "" {
		return Registration{}, 0, false
	}
	lease, err := strconv.ParseInt(r.Lease, 16, 64)
	if err != nil || lease <= 0 {
		return Registration{}, 0, false
	}
	return r, lease, true
}

func (r Registration) encode() string {
	b, err := json.Marshal(r)
	if err != nil { // strings, a number and a time of this process: cannot happen
		panic(err)
	}
	return string(b)
}

func (s *Session) describe() Registration {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Registration{
		Incarnation: s.cfg.Incarnation,
		Host:        host,
		PID:         os.Getpid(),
		Started:     s.cfg.Started.UTC(),
		Version:     moduleVersion(),
		Lease:       strconv.FormatInt(int64(s.lease), 16),
	}
}

const modulePath = "github.com/andresayac/botmesh-etcd"

// moduleVersion is this module's version in whatever binary it is part of.
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Path == modulePath {
		return info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == modulePath {
			return m.Version
		}
	}
	return "unknown"
}
