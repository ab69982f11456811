package session_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/session"
)

// Nothing would ever take it away, whatever it says.
func TestARegistrationWithoutALeaseIsRemoved(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"unreadable":        "oops",
		"of somebody":       `{"incarnation":"other","host":"h","pid":7,"lease":"7a"}`,
		"of our own making": `{"incarnation":"first","host":"h","pid":7,"lease":"7a"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, prefix := shared(t)
			cfg := config(t, client, prefix)
			_, err := client.Put(t.Context(), cfg.Schema.Replica("bot"), value)
			require.NoError(t, err)
			s := open(t, cfg)
			require.Equal(t, "first", registered(t, cfg).Incarnation)
			require.NoError(t, s.Check())
		})
	}
}

// Its lease, not its text, decides how long it stays; and nobody is named who is not there.
func TestAnUnreadableRegistrationWithALeaseIsWaitedForAndNobodyIsBlamed(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	cfg := config(t, client, prefix)
	lease, err := client.Grant(t.Context(), 600)
	require.NoError(t, err)
	_, err = client.Put(t.Context(), cfg.Schema.Replica("bot"), "oops", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	_, err = session.Open(within(t, 600*time.Millisecond), cfg)
	require.ErrorIs(t, err, session.ErrReplicaIDInUse)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "cannot be read")
	require.NotContains(t, err.Error(), "process 0")
	answer, err := client.Get(t.Context(), cfg.Schema.Replica("bot"))
	require.NoError(t, err)
	require.Equal(t, "oops", string(answer.Kvs[0].Value), "it is left alone")

	opened := make(chan *session.Session, 1)
	go func() {
		s, err := session.Open(within(t, patience), cfg)
		if err != nil {
			t.Errorf("after the end of its lease: %v", err)
		}
		opened <- s
	}()
	_, err = client.Revoke(t.Context(), lease.ID)
	require.NoError(t, err)
	if s := <-opened; s != nil {
		s.End(errStopped)
		s.Wait()
	}
}

func TestARegistrationThatLosesItsLeaseWhileItIsWaitedForIsRemoved(t *testing.T) {
	t.Parallel()
	client, prefix := shared(t)
	cfg := config(t, client, prefix)
	lease, err := client.Grant(t.Context(), 600)
	require.NoError(t, err)
	defer func() { _, _ = client.Revoke(context.WithoutCancel(t.Context()), lease.ID) }()
	key := cfg.Schema.Replica("bot")
	_, err = client.Put(t.Context(), key, "oops", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	looked := make(chan struct{})
	cfg.Clock = sync.OnceValue(func() time.Duration { close(looked); return 0 })
	waiting := make(chan error, 1)
	go func() {
		s, err := session.Open(within(t, patience), cfg)
		if err == nil {
			s.End(errStopped)
			s.Wait()
		}
		waiting <- err
	}()
	<-looked
	_, err = client.Put(t.Context(), key, "oops")
	require.NoError(t, err)
	require.NoError(t, <-waiting)
}
