package tickets_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// judge sees every turn of one key begin and end, and knows what was promised.
type judge struct {
	mu      sync.Mutex
	current *tickets.Turn
	fence   fencing.Token
	holder  *replica // of the last turn
	told    []string // what each turn was told of its predecessor, "" is unknown
}

func (j *judge) enter(r *replica, turn *tickets.Turn) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.current != nil && j.current.AssertHeld() == nil {
		return fmt.Errorf("two holders: fence %d begins while %d is held", turn.Fence(), j.current.Fence())
	}
	if turn.Fence() <= j.fence {
		return fmt.Errorf("fence %d after %d", turn.Fence(), j.fence)
	}
	said := previous(turn)
	switch {
	case said != "" && (j.holder == nil || said != j.holder.id):
		return fmt.Errorf("fence %d of %s: the previous holder was not %s", turn.Fence(), r.id, said)
	case turn.Warm() && j.holder != r:
		return fmt.Errorf("fence %d of %s is wrongly warm", turn.Fence(), r.id)
	}
	j.current, j.fence, j.holder, j.told = turn, turn.Fence(), r, append(j.told, said)
	return nil
}

// exit comes before the release, like the end of the work.
func (j *judge) exit(turn *tickets.Turn) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.current == turn {
		j.current = nil
	}
}

// knewEverybody is for a life without misfortune: "unknown" is always true, and so proves nothing.
func (l *life) knewEverybody(t *testing.T) {
	t.Helper()
	require.Equal(t, []string{"", "a", "b", "a", "b", "c", "c"}, l.judge.told)
}
