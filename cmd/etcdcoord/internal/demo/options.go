package demo

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/connect"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/faults"
)

// Options is what the user chose.
type Options struct {
	Replicas    int
	Messages    int // of the built-in set
	Chats       int // of the built-in set
	Work        Range
	TTL         time.Duration
	Faults      []faults.Fault
	Coordinator string    // "etcd" or "none"
	Updates     io.Reader // nil: the built-in set

	Etcd     connect.Options
	Embedded bool // start an etcd; Etcd.Endpoints is not looked at

	Verbose bool
	Command func() *exec.Cmd // runs replica.Main
	Stderr  io.Writer        // left-out lines, and logs with Verbose
	View    View
}

// Check refuses what cannot be.
func (o *Options) Check() error {
	switch {
	case o.Replicas < 1 || o.Replicas > 100:
		return fmt.Errorf("--replicas %d: use 1 to 100", o.Replicas)
	case o.Messages < 1:
		return fmt.Errorf("--messages %d: use 1 or more", o.Messages)
	case o.Chats < 1:
		return fmt.Errorf("--chats %d: use 1 or more", o.Chats)
	case o.TTL < time.Second || o.TTL > time.Hour:
		return fmt.Errorf("--ttl %v: use 1s to 1h", o.TTL)
	case o.Coordinator != "etcd" && o.Coordinator != "none":
		return fmt.Errorf("--coordinator %q: use etcd or none", o.Coordinator)
	}
	return nil
}

// Range is from one duration to another, "20ms-80ms", or one duration alone. It is a pflag.Value.
type Range struct{ Min, Max time.Duration }

// String is the range as Set reads it.
func (r *Range) String() string {
	if r.Min == r.Max {
		return r.Min.String()
	}
	return r.Min.String() + "-" + r.Max.String()
}

// Type names the value in the help.
func (r *Range) Type() string { return "range" }

// Set reads a range.
func (r *Range) Set(text string) error {
	low, high, both := strings.Cut(text, "-")
	if !both {
		high = low
	}
	var err error
	if r.Min, err = time.ParseDuration(low); err != nil {
		return fmt.Errorf("%w (write a range as 20ms-80ms)", err)
	}
	if r.Max, err = time.ParseDuration(high); err != nil {
		return fmt.Errorf("%w (write a range as 20ms-80ms)", err)
	}
	if r.Min < 0 || r.Max < r.Min {
		return errors.New("the range must not begin below 0 or end before it begins")
	}
	return nil
}
