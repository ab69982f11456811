package demo

import (
	"context"
	"fmt"
	"sync"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/fleet"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/screen"
)

// View shows a run until ctx ends.
type View func(ctx context.Context, board func() screen.Board, lines <-chan screen.Line) error

// narrator turns entries of the journal into lines for the reader.
type narrator struct {
	lines chan screen.Line

	mu   sync.Mutex
	last map[string]string // replica -> its last event
}

// linesKept is how many lines can wait for a slow terminal. A run without coordinator has many.
const linesKept = 1024

func newNarrator(j *journal.Journal) *narrator {
	n := &narrator{lines: make(chan screen.Line, linesKept), last: make(map[string]string)}
	j.Tap(func(e journal.Entry) {
		text, kind := narrate(e)
		if text == "" {
			return
		}
		n.mu.Lock()
		n.last[e.Replica] = text
		n.mu.Unlock()
		select {
		case n.lines <- screen.Line{At: e.At, Replica: e.Replica, Text: text, Kind: kind}:
		default: // the journal must not wait for a terminal; what is judged is not lost
		}
	})
	return n
}

func (n *narrator) lastOf(replica string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last[replica]
}

// narrate says what is worth a line.
func narrate(e journal.Entry) (string, screen.LineKind) {
	switch e.Kind {
	case journal.Started:
		return "started, " + e.Note, screen.Info
	case journal.Ready:
		return "takes posts", screen.Good
	case journal.Killed:
		return "SIGKILL, " + e.Note, screen.Fault
	case journal.Frozen:
		return "SIGSTOP, " + e.Note, screen.Fault
	case journal.Woken:
		return "SIGCONT", screen.Fault
	case journal.Terminated:
		return "SIGTERM, " + e.Note, screen.Fault
	case journal.Exited:
		if e.Note != "" {
			return "ended with " + e.Note, screen.Bad
		}
		return "gone", screen.Info
	case journal.WriteRefused:
		return fmt.Sprintf("stale write refused: update %d of chat %s, fence %d", e.Update, e.Chat, e.Fence), screen.Good
	case journal.BeginRefused:
		return fmt.Sprintf("stale read refused: update %d of chat %s, fence %d", e.Update, e.Chat, e.Fence), screen.Good
	case journal.BeatRefused:
		return fmt.Sprintf("stale heartbeat refused, fence %d", e.Fence), screen.Good
	case journal.Says, journal.Remark:
		return e.Note, screen.Info
	}
	return "", screen.Info
}

// board is the picture of the moment.
func (r *run) board() screen.Board {
	counts, _ := r.open.Counts()
	b := screen.Board{
		Elapsed: r.journal.Now(), Sent: counts.Sent, Handled: counts.Handled,
		Dropped: counts.Dropped, InFlight: counts.InFlight(),
	}
	if in := r.in.Load(); in != nil {
		b.Total = in.total()
	}
	for _, p := range r.fleet.Current() {
		v := p.View()
		load := r.open.LoadOf(v.Incarnation)
		row := screen.Row{
			Name: v.Incarnation, State: string(v.State), Leader: v.Leads && v.State == fleet.Running,
			Held: load.Holding, Waiting: load.Open - load.Holding, Handled: load.Handled, Last: r.narrator.lastOf(v.Incarnation),
		}
		b.Rows = append(b.Rows, row)
	}
	return b
}
