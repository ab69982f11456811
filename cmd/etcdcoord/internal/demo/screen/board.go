package screen

import (
	"fmt"
	"time"
)

// Board is what there is to see at a moment.
type Board struct {
	Elapsed  time.Duration
	Total    int // 0: not known yet
	Sent     int
	Handled  int
	Dropped  int
	InFlight int
	Rows     []Row
}

// Row is one replica.
type Row struct {
	Name, State            string
	Leader                 bool
	Held, Waiting, Handled int
	Last                   string
}

// Line is one thing that happened.
type Line struct {
	At      time.Duration
	Replica string
	Text    string
	Kind    LineKind
}

// LineKind is how a line is to be taken.
type LineKind int

// The kinds of lines.
const (
	Info LineKind = iota
	Fault
	Good
	Bad
)

func (l Line) String() string {
	return fmt.Sprintf("%6.1fs  %-12s %s", l.At.Seconds(), l.Replica, l.Text)
}

func (b Board) leader() string {
	for _, r := range b.Rows {
		if r.Leader {
			return r.Name
		}
	}
	return "nobody"
}

// progress is the state of the run in one line.
func (b Board) progress() string {
	of := ""
	if b.Total > 0 {
		of = fmt.Sprintf(" of %d", b.Total)
	}
	return fmt.Sprintf("sent %d%s, handled %d, under way %d, gone with a replica %d; leader: %s",
		b.Sent, of, b.Handled, b.InFlight, b.Dropped, b.leader())
}
