package etcdcoord_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

func TestStatsTellTheState(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c, w := b.replica("a")
	require.Equal(t, etcdcoord.Stats{State: "new", ReplicaID: "a"}, c.Stats())
	require.NoError(t, c.Start(within(t, patience)))
	s := c.Stats()
	require.Equal(t, "running", s.State)
	require.NotZero(t, s.LeaseID)
	require.Equal(t, 30*time.Second, s.TTL)
	require.Greater(t, s.TrustLeft, time.Duration(0))
	require.LessOrEqual(t, s.TrustLeft, 25*time.Second, "less the margin")

	// No new session can be had.
	w.set(func(_ context.Context, method string, _ any) (bool, error) {
		if method == "/etcdserverpb.Lease/LeaseGrant" {
			return false, status.Error(codes.Unknown, "refused")
		}
		return true, nil
	})
	b.kill(c)
	eventually(t, "never healing", func() bool { return c.Stats().State == "healing" })
	s = c.Stats()
	require.Zero(t, s.LeaseID)
	require.Zero(t, s.TrustLeft)
	require.EqualValues(t, 1, s.SessionsLost)
	w.set(nil)
	eventually(t, "never healed", func() bool { return c.Stats().State == "running" })

	require.NoError(t, c.Stop(within(t, patience)))
	s = c.Stats()
	require.Equal(t, "stopped", s.State)
	require.Zero(t, s.LeaseID)
	require.NotZero(t, s.Renewals)
	require.NoError(t, c.Start(within(t, patience)))
	require.Equal(t, "running", c.Stats().State)
}

func TestStatsCountWhatThereIsAndWhatThereWas(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c, _ := b.started("a")
	other, _ := b.started("b")
	held := []*etcdcoord.Turn{take(t, c, "1"), take(t, c, "2"), take(t, c, "3")}
	reserve(t, c, "1")
	reserve(t, c, "granted at once, not acquired")
	leadership, err := c.TryLead(within(t, patience), "role")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	campaign := make(chan error, 1)
	go func() {
		_, err := c.Lead(ctx, "role")
		campaign <- err
	}()
	eventually(t, "no campaign", func() bool { return c.Stats().Campaigning == 1 })
	s := c.Stats()
	require.Equal(t, []int{3, 2, 0, 0, 0, 1, 1},
		[]int{s.TurnsHeld, s.TicketsWaiting, s.Reserving, s.Leaving, s.Ghosts, s.Leading, s.Campaigning})
	require.EqualValues(t, 3, s.TurnsGranted)
	cancel()
	require.ErrorIs(t, got(t, campaign), context.Canceled)
	require.NoError(t, leadership.Resign(within(t, patience)))
	require.NoError(t, held[0].Release(within(t, patience)))
	s = c.Stats()
	require.Equal(t, []int{2, 2, 0, 0}, []int{s.TurnsHeld, s.TicketsWaiting, s.Leading, s.Campaigning})
	require.EqualValues(t, 1, s.TurnsReleased)

	dead := take(t, other, "x")
	waiting := reserve(t, c, "x")
	b.kill(other)
	turn, err := c.AcquireTurn(within(t, patience), waiting)
	require.NoError(t, err)
	require.Greater(t, turn.Fence(), dead.Fence())
	eventually(t, "not skipped", func() bool { return c.Stats().TicketsSkipped == 1 })
	require.NoError(t, c.Stop(within(t, patience)))
	s = c.Stats()
	require.EqualValues(t, []uint64{4, 1, 3}, []uint64{s.TurnsGranted, s.TurnsReleased, s.TurnsLost})
	require.Zero(t, s.SessionsLost, "stopping is not losing")
	require.Zero(t, s.TurnsHeld+s.TicketsWaiting)
}

// What is under way to etcd, or has to be found out.
func TestStatsCountWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c, w := b.started("a")
	turn := take(t, c, "held")
	mayGo := make(chan struct{})
	w.set(func(ctx context.Context, _ string, request any) (bool, error) {
		if _, ok := request.(*pb.TxnRequest); ok {
			select {
			case <-mayGo:
			case <-ctx.Done():
			}
			return false, status.Error(codes.Unknown, "lost")
		}
		return true, nil
	})
	reserved, released := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := c.Reserve(within(t, patience), "k")
		reserved <- err
	}()
	go func() { released <- turn.Release(within(t, patience)) }()
	eventually(t, "not under way", func() bool { return c.Stats().Reserving == 1 && c.Stats().Leaving == 1 })
	close(mayGo)
	require.ErrorIs(t, got(t, reserved), etcdcoord.ErrUnavailable)
	s := c.Stats()
	require.Equal(t, []int{0, 1, 1}, []int{s.Reserving, s.Leaving, s.Ghosts})
	w.set(nil)
	require.NoError(t, got(t, released))
	eventually(t, "the ghost stays", func() bool { return c.Stats().Ghosts == 0 })
}
