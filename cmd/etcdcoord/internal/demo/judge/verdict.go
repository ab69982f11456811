package judge

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Verdict is the outcome of a run, in the form in which --json prints it.
type Verdict struct {
	OK                  bool  `json:"ok"`
	Sent                int   `json:"sent"`
	Handled             int   `json:"handled"`
	Skipped             int   `json:"skipped"`
	Lost                int   `json:"lost"`
	Duplicates          int   `json:"duplicates"`
	OutOfOrder          int   `json:"out_of_order"`
	Overlaps            int   `json:"overlaps"`
	StaleWritesOffered  int   `json:"stale_writes_offered"`
	StaleWritesAccepted int   `json:"stale_writes_accepted"`
	MaxStallMS          int64 `json:"max_stall_ms"`
	ReplicasKilled      int   `json:"replicas_killed"`
	ReplicasFrozen      int   `json:"replicas_frozen"`
	ReplicasRolled      int   `json:"replicas_rolled"`
	ElapsedMS           int64 `json:"elapsed_ms"`

	// Findings says what each violation was, for the reader; the first few of each kind.
	Findings []string `json:"-"`

	perKind map[string]int
}

// findingsPerKind bounds what a run without coordinator would print.
const findingsPerKind = 5

func (v *Verdict) find(kind string, count *int, format string, args ...any) {
	*count++
	if v.perKind == nil {
		v.perKind = make(map[string]int)
	}
	if v.perKind[kind]++; v.perKind[kind] <= findingsPerKind {
		v.Findings = append(v.Findings, kind+": "+fmt.Sprintf(format, args...))
	}
}

// sumUp says of how many violations no more is said.
func (v *Verdict) sumUp() {
	for _, kind := range slices.Sorted(maps.Keys(v.perKind)) {
		if more := v.perKind[kind] - findingsPerKind; more > 0 {
			v.Findings = append(v.Findings, fmt.Sprintf("%s: and %d more", kind, more))
		}
	}
}

// Violations is the number of broken promises.
func (v *Verdict) Violations() int {
	return v.Lost + v.Duplicates + v.OutOfOrder + v.Overlaps + v.StaleWritesAccepted
}

// Case is what there is to judge.
type Case struct {
	TTL time.Duration // of a replica's session, as etcd granted it
	// Interrupted: the user ended the run. What no replica had acknowledged by then was not sent.
	Interrupted bool
	// Ledgers is what the store holds in the end: per chat the updates in the order in which they are written there.
	Ledgers map[string][]int64
}
