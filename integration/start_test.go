package integration_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

func TestStopEndsAStartThatWaitsForAPredecessor(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	dead := b.child("replica", "a", b.etcd.Endpoints()[0], 30*time.Second)
	dead.kill()
	c := b.unstarted(b.etcd.Client(t), "a")
	var starts []<-chan error
	for range 3 {
		started := make(chan error, 1)
		go func() { started <- c.Start(context.Background()) }()
		starts = append(starts, started)
	}
	<-time.After(600 * time.Millisecond) // so that it has begun to wait; the test holds without
	notYet(t, starts[0], "the predecessor's lease lives")
	began := time.Now()
	require.NoError(t, c.Stop(soon(t)))
	for _, started := range starts {
		require.ErrorIs(t, got(t, started), etcdcoord.ErrStopped)
	}
	within(t, began, 0, "Stop during Start")
	require.Equal(t, "stopped", c.Stats().State)
	require.Len(t, b.keys("v1/replicas/"), 1, "the predecessor's")
}

func TestStartAgainstADeadEndpointNamesIt(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	endpoint := listener.Addr().String()
	require.NoError(t, listener.Close())
	b := newBot(t)
	client := b.etcd.Client(t, func(cfg *clientv3.Config) { cfg.Endpoints = []string{endpoint} })
	c := b.unstarted(client, "a", requestTimeout(700*time.Millisecond))
	began := time.Now()
	err = c.Start(context.Background())
	within(t, began, 700*time.Millisecond, "Start against a dead endpoint")
	var unavailable *etcdcoord.CoordinationUnavailableError
	require.ErrorAs(t, err, &unavailable)
	require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
	require.Equal(t, "start", unavailable.Op)
	require.Contains(t, err.Error(), endpoint)
	_, err = c.Reserve(t.Context(), "chat")
	require.ErrorIs(t, err, etcdcoord.ErrNotStarted)
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errWhy)
	require.ErrorIs(t, c.Start(cancelled), errWhy)
	require.NoError(t, c.Stop(t.Context()), "nothing to stop")
}

var errWhy = errors.New("the caller's reason")

func TestStartWhileHealingGivesUpAfterRequestTimeout(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, proxy := b.apart("a", ttl(2*time.Second), requestTimeout(time.Second))
	gone := collect[etcdcoord.SessionLost](t, a)
	proxy.Drop()
	got(t, gone)
	began := time.Now()
	started := make(chan error, 1)
	go func() { started <- a.Start(context.Background()) }()
	err := got(t, started)
	within(t, began, time.Second, "Start while healing")
	require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
	require.Contains(t, err.Error(), proxy.Endpoint())
	proxy.Heal()
	require.NoError(t, a.Start(soon(t)), "it waits for the healing")
	release(t, take(t, a, "chat"))
}
