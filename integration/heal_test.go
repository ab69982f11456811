package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
)

func TestStopWhileHealingReturnsByItsDeadlineAndIsFinishedLater(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, proxy := b.apart("a", ttl(2*time.Second), requestTimeout(time.Second))
	gone, restored := collect[etcdcoord.SessionLost](t, a), collect[etcdcoord.SessionRestored](t, a)
	proxy.Drop()
	got(t, gone)
	reserved := make(chan error, 1)
	go func() { _, err := a.Reserve(soon(t), "chat"); reserved <- err }()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	require.ErrorIs(t, a.Stop(ctx), etcdcoord.ErrUnavailable)
	within(t, began, 300*time.Millisecond, "Stop while healing")
	require.ErrorIs(t, got(t, reserved), etcdcoord.ErrStopped)
	proxy.Heal()
	require.NoError(t, a.Stop(soon(t)))
	require.Empty(t, b.keys(""))
	notYet(t, restored, "it was stopped")
	require.NoError(t, a.Start(soon(t)))
	release(t, take(t, a, "chat"))
}

// A replica whose place was taken while it was away says so, and comes back when it is free.
func TestReplicaWhoseIDWasTakenWhileItWasCutOffSaysSo(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	a, proxy := b.apart("twin", ttl(2*time.Second), requestTimeout(time.Second))
	gone, restored := collect[etcdcoord.SessionLost](t, a), collect[etcdcoord.SessionRestored](t, a)
	proxy.Drop()
	got(t, gone)
	other := b.replica("twin", ttl(6*time.Second)) // waits for the lease of the first to run out
	proxy.Heal()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := a.Reserve(ctx, "chat")
		require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var inUse *etcdcoord.ReplicaIDInUseError
		return errors.As(err, &inUse)
	}, patience, time.Millisecond, "why there is no session")
	notYet(t, restored, "the id is somebody else's")
	require.NoError(t, other.Stop(soon(t)))
	got(t, restored)
	release(t, take(t, a, "chat"))
}

func TestStopAfterTheClientWasClosedDoesNotWait(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	client := b.etcd.Client(t)
	a := b.unstarted(client, "a", ttl(2*time.Second))
	require.NoError(t, a.Start(soon(t)))
	turn := take(t, a, "chat")
	require.NoError(t, client.Close())
	began := time.Now()
	require.ErrorIs(t, a.Stop(soon(t)), etcdcoord.ErrUnavailable)
	within(t, began, 0, "Stop with a closed client")
	lost(t, context.Cause(turn.Context()), etcdcoord.Stopped)
	release(t, take(t, b.replica("b"), "chat")) // when the lease has run out
}

func TestHealingReplicaWhoseClientWasClosedSaysSo(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	client := b.etcd.Client(t)
	a := b.replicaOn(client, "a", ttl(2*time.Second))
	gone := collect[etcdcoord.SessionLost](t, a)
	require.NoError(t, client.Close())
	got(t, gone)
	began := time.Now()
	_, err := a.Reserve(soon(t), "chat")
	within(t, began, 0, "Reserve with a closed client")
	require.ErrorIs(t, err, etcdcoord.ErrUnavailable)
	require.ErrorContains(t, err, "client is closed")
}
