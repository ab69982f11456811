package tickets_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/tickets"
)

// fill makes etcd full for the replicas: whatever contains a put is refused.
func fill(all ...*replica) (space func()) {
	rules := make([]*rule, len(all))
	for i, r := range all {
		rules[i] = r.tap.on(func(c call) bool { return c.puts }, -1, full)
	}
	return func() {
		for i, r := range all {
			r.tap.off(rules[i])
		}
	}
}

// cilium#1172: what is in line is let through also while etcd is full, for as long as it is.
func TestAFullEtcdLetsThroughWhoeverIsInLine(t *testing.T) {
	t.Parallel()
	env, a, b := two(t)
	c := env.join("c")
	turn := a.take(t, key)
	second := acquiring(within(t, patience), b.reserve(t, key))
	third := c.reserve(t, key)
	fourth := acquiring(within(t, patience), a.reserve(t, key))
	space := fill(a, b, c)

	_, err := a.Reserve(within(t, patience), key)
	require.Equal(t, fencing.NoSpace, unavailable(t, err))
	release(t, turn)
	next := won(t, second)
	require.Equal(t, "a", previous(next))
	require.Empty(t, env.record(key), "it cannot be put, and an old name would be wrong")
	require.NoError(t, third.Cancel(within(t, patience)))
	release(t, next)
	last := won(t, fourth)
	require.Empty(t, previous(last))
	require.False(t, last.Warm())
	release(t, last)
	for _, r := range []*replica{a, b, c} {
		r.idle(t)
	}
	env.empty(key)

	space()
	release(t, a.take(t, key))
	require.Equal(t, "a", previous(b.take(t, key)))
}

// A place that got "no space" while its request may still come needs space to be settled.
func TestAFullEtcdKeepsTheSlotOfALostReserve(t *testing.T) {
	t.Parallel()
	env, a, _ := two(t)
	release(t, a.take(t, key)) // it has a history lease
	a.tap.first("reserve", keep)
	space := fill(a)
	_, err := a.Reserve(within(t, patience), key)
	unavailable(t, err)
	eventually(t, "not looked for", func() bool { return a.tap.count("ghost") > 1 })
	require.Equal(t, tickets.Counts{Ghosts: 1}, a.Counts())
	require.True(t, a.tap.deliver(within(t, patience))[0].succeeded)
	env.empty(key)
	a.idle(t)
	require.Zero(t, env.bumps("a"))
	space()
	release(t, a.take(t, key))
}
