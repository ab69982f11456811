package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/integration/faultproxy"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

// etcd#15247: the lease vanishes although renewals seemed fine.
func TestALeaseRevokedByHandIsNoticedAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	s := open(t, config(t, client, prefix))
	_, err := client.Revoke(t.Context(), s.Lease())
	require.NoError(t, err)
	began := time.Now()
	requireDone(t, s)
	require.Less(t, time.Since(began), 2*time.Second, "renewed every second")
	require.ErrorIs(t, s.Err(), session.ErrLost)
}

func TestASessionOutlivesAShortOutage(t *testing.T) {
	t.Parallel()
	cluster := testetcd.New(t, testetcd.FastTicks)
	cfg := config(t, cluster.Client(t), "/p/")
	renewed := make(chan error, 1000)
	cfg.TTL, cfg.RenewEvery = 10*time.Second, 100*time.Millisecond
	cfg.Renewed = func(_ time.Duration, err error) { renewed <- err }
	s := open(t, cfg)
	require.NoError(t, <-renewed)
	require.NoError(t, cluster.Member(0).Restart())
	for answered := 0; answered < 3; {
		select {
		case err := <-renewed:
			if err == nil {
				answered++
			}
		case <-time.After(patience):
			require.FailNow(t, "no renewal was answered")
		}
	}
	require.NoError(t, s.Check())
	require.NotNil(t, registered(t, cfg))
}

// With one of two endpoints black-holed every other renewal hangs; the session must live on.
func TestASessionOutlivesAHangingEndpoint(t *testing.T) {
	t.Parallel()
	cluster, prefix := testetcd.Shared(t), testetcd.Prefix(t)
	bad := faultproxy.Before(t, cluster.Endpoints()[0])
	client := cluster.Client(t, func(cfg *clientv3.Config) {
		cfg.Endpoints = []string{cluster.Endpoints()[0], bad.Endpoint()}
	})
	cfg := config(t, client, prefix)
	cfg.TTL, cfg.RenewEvery, cfg.Margin = 6*time.Second, 2*time.Second, time.Second
	failed, answered := make(chan struct{}, 100), make(chan struct{}, 100)
	cfg.Renewed = func(_ time.Duration, err error) {
		if err != nil {
			failed <- struct{}{}
		} else {
			answered <- struct{}{}
		}
	}
	s := open(t, cfg)
	bad.Hold()
	<-failed
	for range 3 {
		<-answered
	}
	require.NoError(t, s.Check())
	s.End(errStopped)
	s.Wait()
	bad.Heal()
}

// The promise of the trust window, measured from outside: the replica knows before a rival can see it.
// Stock sessions were late in 24 of 24 such cuts.
func TestDoneIsClosedBeforeARivalSeesTheEnd(t *testing.T) {
	t.Parallel()
	cluster := testetcd.Shared(t)
	for _, phase := range []time.Duration{0, 300 * time.Millisecond, 800 * time.Millisecond} { // after a renewal
		for _, ttl := range []time.Duration{2 * time.Second, 3 * time.Second} {
			t.Run(fmt.Sprintf("phase=%v/ttl=%v", phase, ttl), func(t *testing.T) {
				t.Parallel()
				proxy := faultproxy.Before(t, cluster.Endpoints()[0])
				client := cluster.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{proxy.Endpoint()} })
				cfg := config(t, client, testetcd.Prefix(t))
				cfg.TTL, cfg.RenewEvery = ttl, time.Second
				renewed := make(chan struct{}, 100)
				cfg.Renewed = func(_ time.Duration, err error) {
					if err == nil {
						renewed <- struct{}{}
					}
				}
				s := open(t, cfg)
				rival := cluster.Client(t)
				vanishes := rival.Watch(within(t, patience), cfg.Schema.Replica("bot"))
				<-renewed
				<-time.After(phase) // the time from a renewal to the cut is what is varied
				proxy.Drop()
				for answer := range vanishes {
					require.NoError(t, answer.Err())
					if answer.Events[0].Type != clientv3.EventTypeDelete {
						continue
					}
					select {
					case <-s.Done():
					default:
						require.Fail(t, "a rival saw the end first")
					}
					break
				}
				require.ErrorIs(t, s.Err(), session.ErrLost)
				s.Wait()
				proxy.Heal()
			})
		}
	}
}
