package integration_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

func TestTurnsOfThreeReplicasAreGrantedInReserveOrder(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	replicas := []*etcdcoord.Coordinator{b.replica("a"), b.replica("b"), b.replica("c")}
	const n = 60
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		order []int
		fence etcdcoord.Token
	)
	for i := range n {
		c := replicas[i%len(replicas)]
		ticket := reserve(t, c, "chat")
		wg.Go(func() {
			turn, err := c.AcquireTurn(soon(t), ticket)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			if turn.Fence() <= fence {
				t.Errorf("fence %d after %d", turn.Fence(), fence)
			}
			fence = turn.Fence()
			mu.Unlock()
			if err := turn.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		require.Equal(t, i, order[i], fmt.Sprint(order))
	}
	b.noTickets()
}
