package election_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/election"
	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// requireLost waits for the end of the leadership and checks its reason.
func requireLost(t *testing.T, l *election.Leadership, reason fencing.LostReason) *fencing.LeaseLostError {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(patience):
		require.FailNow(t, "the leadership did not end")
	}
	var lost *fencing.LeaseLostError
	require.ErrorAs(t, context.Cause(l.Context()), &lost)
	require.Equal(t, reason, lost.Reason)
	require.Equal(t, l.Name(), lost.Key)
	require.Equal(t, l.Fence(), lost.Token)
	require.Equal(t, error(lost), l.AssertHeld())
	return lost
}

// etcd-cpp-apiv3#263, kube-vip#1725
func TestALeaderWhoseKeyIsDeletedByHandIsEvicted(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	remote := b.goLead(t.Context(), "n")
	b.campaigns(t, "n")
	local := a.goLead(t.Context(), "n")

	began := time.Now()
	_, err = b.client.Delete(t.Context(), a.ownKey("n"))
	require.NoError(t, err)
	requireLost(t, l, fencing.Evicted)
	t.Logf("noticed after %v", time.Since(began))
	require.Less(t, time.Since(began), 2*time.Second)
	second := remote.wins(t)
	require.Greater(t, second.Fence(), l.Fence())
	eventually(t, "told", func() bool { return len(a.heard()) == 2 })
	require.Equal(t, fmt.Sprintf("lost n %d evicted", l.Fence()), a.heard()[1])

	a.campaigns(t, "n") // the next local contender
	require.NoError(t, l.Resign(t.Context()), "after a loss there is nothing to give back")
	require.Equal(t, []string{"b", "a"}, candidates(t, a.client, a.schema, "n"), "and nothing was deleted")
	require.NoError(t, second.Resign(t.Context()))
	local.wins(t)
}

func TestACandidateDeletedWhileWaitingCampaignsAgain(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	p := b.goLead(t.Context(), "n")
	before := b.campaigns(t, "n")
	_, err = a.client.Delete(t.Context(), b.ownKey("n"))
	require.NoError(t, err)
	after := b.campaigns(t, "n") // while the leader is still there
	require.Greater(t, after, before)
	p.waits(t)
	require.NoError(t, l.Resign(t.Context()))
	require.EqualValues(t, after, p.wins(t).Fence())
}

// A put by hand takes the lease off a key: nobody would ever remove it.
func TestAKeyThatLostItsLeaseIsRemoved(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	p := b.goLead(t.Context(), "n")
	waiting := b.campaigns(t, "n")
	for _, key := range []string{b.ownKey("n"), a.ownKey("n")} {
		_, err = a.client.Put(t.Context(), key, "by hand")
		require.NoError(t, err)
	}
	requireLost(t, l, fencing.Evicted)
	second := p.wins(t)
	require.Greater(t, int64(second.Fence()), waiting)
	require.Equal(t, []string{"b"}, candidates(t, a.client, a.schema, "n"))
}

// A key of our own candidate's name, put by somebody else, must not be taken for a win.
func TestAStrangersKeyOfOurNameIsRemovedFirst(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	put, err := b.client.Put(t.Context(), a.ownKey("n"), "stranger")
	require.NoError(t, err)
	l, err := a.Lead(within(t, patience), "n")
	require.NoError(t, err)
	require.Greater(t, int64(l.Fence()), put.Header.Revision)
	require.Equal(t, []string{"a"}, candidates(t, a.client, a.schema, "n"))
}

// Renewals are far apart here: it is the look at the keys that finds out.
func TestARevokedLeaseIsExpiryAndNotEviction(t *testing.T) {
	t.Parallel()
	a, b := two(t, ttl(time.Minute))
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	p := a.goLead(t.Context(), "n")
	eventually(t, "a local one waits", func() bool { _, c := a.Counts(); return c == 1 })

	_, err = b.client.Revoke(t.Context(), a.session.Lease())
	require.NoError(t, err)
	requireLost(t, l, fencing.Expired)
	require.ErrorIs(t, p.fails(t), election.ErrSessionEnded)
	eventually(t, "told", func() bool { return len(a.heard()) == 2 })
	require.Equal(t, fmt.Sprintf("lost n %d expired", l.Fence()), a.heard()[1])
}

func TestACampaignFindsOutThatItsLeaseWasRevoked(t *testing.T) {
	t.Parallel()
	a, b := two(t, ttl(time.Minute))
	l, err := b.Lead(t.Context(), "n")
	require.NoError(t, err)
	p := a.goLead(t.Context(), "n")
	a.campaigns(t, "n")
	_, err = b.client.Revoke(t.Context(), a.session.Lease())
	require.NoError(t, err)
	require.ErrorIs(t, p.fails(t), election.ErrSessionEnded)
	require.NoError(t, l.AssertHeld())
	require.Equal(t, []string{"b"}, candidates(t, b.client, b.schema, "n"))
}

// The look was under way when the leadership was resigned: an absent key is then as it should be.
func TestAResignedLeadershipIsNotTakenForAnEvictedOne(t *testing.T) {
	t.Parallel()
	a, b, tp := tapped(t)
	l, err := a.Lead(t.Context(), "n")
	require.NoError(t, err)
	var once sync.Once
	resigned := make(chan error, 1)
	tp.before(func(r *txnRequest) {
		if len(r.Compare) == 0 && len(r.Success) == 3 { // an audit of one name
			once.Do(func() { resigned <- l.Resign(t.Context()) })
		}
	})
	looked := make(chan struct{}, 1000)
	tp.observe(func(r *txnRequest, _ *pb.TxnResponse) {
		if len(r.Compare) == 0 {
			looked <- struct{}{}
		}
	})
	require.NoError(t, <-resigned)
	<-looked
	second, err := a.Lead(t.Context(), "n") // and the next look is at this one
	require.NoError(t, err)
	<-looked
	require.NoError(t, second.AssertHeld())
	require.Len(t, a.heard(), 2, "no loss: %v", a.heard())
	require.Equal(t, []string{"a"}, candidates(t, b.client, b.schema, "n"))
}

func TestEndEndsContextsBeforeItReturnsAndThenEveryCall(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	var led []*election.Leadership
	for i := range 10 {
		l, err := a.Lead(t.Context(), fmt.Sprint("led", i))
		require.NoError(t, err)
		led = append(led, l)
	}
	_, err := b.Lead(t.Context(), "busy")
	require.NoError(t, err)
	var calls []*leading
	for range 10 { // one campaigns, the others queue here
		calls = append(calls, a.goLead(t.Context(), "busy"))
	}
	a.campaigns(t, "busy")
	eventually(t, "all wait", func() bool { _, c := a.Counts(); return c == 10 })

	why := errors.New("rolling restart")
	a.End(fencing.Stopped, why)
	for _, l := range led {
		require.Error(t, l.Context().Err(), "when End has returned, everything has ended")
		require.ErrorIs(t, requireLost(t, l, fencing.Stopped), why)
		require.NoError(t, l.Resign(t.Context()))
	}
	for _, p := range calls {
		err := p.fails(t)
		require.ErrorIs(t, err, election.ErrSessionEnded)
		require.ErrorIs(t, err, why)
	}
	a.End(fencing.Expired, errors.New("too late"))
	require.Len(t, a.heard(), 20)
	for _, line := range a.heard()[10:] {
		require.Contains(t, line, "stopped")
	}
	_, err = a.Lead(t.Context(), "led0")
	require.ErrorIs(t, err, election.ErrSessionEnded)
	_, err = a.TryLead(t.Context(), "led0")
	require.ErrorIs(t, err, why)
	leading, campaigning := a.Counts()
	require.Zero(t, leading+campaigning)
	require.Len(t, candidates(t, b.client, b.schema, "led0"), 1, "End itself touches nothing in etcd")
	a.stop()
	require.Empty(t, candidates(t, b.client, b.schema, "led0"))
}

func TestEveryGainIsToldBeforeItsLoss(t *testing.T) {
	t.Parallel()
	prefix, client := testetcd.Prefix(t), testetcd.Shared(t).Client(t)
	for round := range 15 {
		a := join(t, client, prefix, fmt.Sprint("a", round))
		started := make(chan struct{}, 8)
		results := make(chan *election.Leadership, 8)
		for i := range cap(results) {
			go func() {
				started <- struct{}{}
				l, err := a.Lead(t.Context(), fmt.Sprint(round, "n", i))
				if err != nil && !errors.Is(err, election.ErrSessionEnded) {
					t.Errorf("unexpected: %v", err)
				}
				results <- l
			}()
		}
		for range cap(started) {
			<-started
		}
		if first := <-results; first == nil { // End comes while the others are on their way
			t.Error("nothing ended it, and it did not win")
		}
		a.End(fencing.Stopped, nil)
		for range cap(results) - 1 {
			if l := <-results; l != nil {
				require.Error(t, l.AssertHeld())
			}
		}
		a.stop()
		gained := map[string]bool{}
		for _, line := range a.heard() {
			var what, name, fence string
			_, err := fmt.Sscan(line, &what, &name, &fence)
			require.NoError(t, err)
			require.Equal(t, what == "lost", gained[name+fence], line)
			gained[name+fence] = true
		}
		require.Zero(t, len(a.heard())%2, "what was gained was lost: %v", a.heard())
	}
}

func TestLeadershipsCostNoGoroutines(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	_, err := a.TryLead(t.Context(), "first")
	require.NoError(t, err)
	_, err = b.TryLead(t.Context(), "b") // so that both have all their connections
	require.NoError(t, err)
	const many = 300
	before := runtime.NumGoroutine()
	var last *election.Leadership
	for i := range many {
		last, err = a.TryLead(t.Context(), fmt.Sprint("n", i))
		require.NoError(t, err)
	}
	// Other tests run beside this one, so the number says only that it is not one for each.
	require.Less(t, runtime.NumGoroutine(), before+many/2)
	leading, _ := a.Counts()
	require.Equal(t, many+1, leading)

	// All of them are audited, in several batches.
	_, err = b.client.Delete(t.Context(), a.ownKey(last.Name()))
	require.NoError(t, err)
	requireLost(t, last, fencing.Evicted)
	_, err = b.client.Delete(t.Context(), a.schema.Prefix()+"v1/elections/", clientv3.WithPrefix())
	require.NoError(t, err)
	eventually(t, "all are evicted", func() bool { leading, _ := a.Counts(); return leading == 0 })
}
