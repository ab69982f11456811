package session_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
	"github.com/andresayac/botmesh-etcd/internal/clock"
	"github.com/andresayac/botmesh-etcd/internal/keys"
	"github.com/andresayac/botmesh-etcd/internal/session"
)

const patience = 20 * time.Second

var errStopped = errors.New("stopped by the test")

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// config is for a session of 3 s on a prefix of the test's own.
func config(t *testing.T, client *clientv3.Client, prefix string) session.Config {
	return session.Config{
		Client: client, Schema: keys.New(prefix), ReplicaID: "bot", Incarnation: "first", Started: time.Now(),
		TTL: 3 * time.Second, RenewEvery: time.Second, Margin: 500 * time.Millisecond, RequestTimeout: 5 * time.Second,
		Logger: slog.New(slog.DiscardHandler), Clock: clock.System, Renewed: func(time.Duration, error) {},
	}
}

func open(t *testing.T, cfg session.Config) *session.Session {
	t.Helper()
	s, err := session.Open(within(t, patience), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { s.End(errStopped); s.Wait() })
	return s
}

// shared is a client of the shared etcd, and a prefix.
func shared(t *testing.T) (*clientv3.Client, string) {
	return testetcd.Shared(t).Client(t), testetcd.Prefix(t)
}

// registered is the registration as etcd has it, nil if there is none.
func registered(t *testing.T, cfg session.Config) *session.Registration {
	t.Helper()
	answer, err := cfg.Client.Get(within(t, patience), cfg.Schema.Replica(cfg.ReplicaID))
	require.NoError(t, err)
	if len(answer.Kvs) == 0 {
		return nil
	}
	r, lease, ok := session.ParseRegistration(answer.Kvs[0].Value)
	require.True(t, ok)
	require.Equal(t, answer.Kvs[0].Lease, lease, "the registration names the lease it hangs on")
	return &r
}

// requireDone waits for the end of the session.
func requireDone(t *testing.T, s *session.Session) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(patience):
		require.FailNow(t, "the session did not end")
	}
}
