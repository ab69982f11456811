package fencingtest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/fencing/fencingtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestModelObeysAllLawsByAClockThatIsMoved(t *testing.T) {
	t.Parallel()
	fencingtest.Run(t, func(fencingtest.T) fencingtest.Harness {
		return onMovedClock(func(m *fencingtest.Model) fencing.LeaseProvider { return m })
	})
}

func TestModelObeysAllLawsInRealTime(t *testing.T) {
	t.Parallel()
	fencingtest.Run(t, func(fencingtest.T) fencingtest.Harness {
		return fencingtest.Harness{Provider: fencingtest.NewModel(), TTL: 100 * time.Millisecond, Slack: 50 * time.Millisecond}
	})
}

// onMovedClock is a harness whose time passes only when a law sleeps.
func onMovedClock(provider func(m *fencingtest.Model) fencing.LeaseProvider) fencingtest.Harness {
	clock := fencingtest.NewClock()
	return fencingtest.Harness{
		Provider: provider(fencingtest.NewModelAt(clock.Now)),
		Now:      clock.Now,
		Sleep:    clock.Advance,
		Timeout:  2 * time.Second,
	}
}

func TestModelKeepsItsHoldWhileTheClockStands(t *testing.T) {
	t.Parallel()
	clock := fencingtest.NewClock()
	m := fencingtest.NewModelAt(clock.Now)
	g, err := m.Acquire(t.Context(), "k", "a", time.Nanosecond)
	require.NoError(t, err)
	_, err = m.Acquire(t.Context(), "k", "b", time.Second)
	var held *fencing.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, fencing.HeldError{Key: "k", Owner: "a", Token: g.Token, TTL: 1}, *held)
	clock.Advance(time.Nanosecond)
	_, err = m.Acquire(t.Context(), "k", "b", time.Second)
	require.NoError(t, err)
}

func TestLawsAreNumberedAsInTheInterface(t *testing.T) {
	t.Parallel()
	for i, law := range fencingtest.Laws() {
		require.Equal(t, i+1, law.Number, law)
	}
	require.Equal(t, "01-FreeKeyIsGranted", fencingtest.Laws()[0].String())
}

func TestCheckReportsAndCleansUpAfterAFatalComplaint(t *testing.T) {
	t.Parallel()
	var order []string
	complaints := fencingtest.Check(fencingtest.Laws()[0], func(t fencingtest.T) fencingtest.Harness {
		t.Cleanup(func() { order = append(order, "first") })
		t.Cleanup(func() { order = append(order, "second") })
		t.Errorf("no provider for %s", "you")
		t.FailNow()
		panic("FailNow returned")
	})
	require.Equal(t, []string{"no provider for you"}, complaints)
	require.Equal(t, []string{"second", "first"}, order)

	complaints = fencingtest.Check(fencingtest.Laws()[0], func(t fencingtest.T) fencingtest.Harness {
		t.FailNow()
		panic("FailNow returned")
	})
	require.Len(t, complaints, 1, "a failure without a message is a failure")
}
