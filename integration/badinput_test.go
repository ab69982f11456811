package integration_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

var badNames = map[string]string{
	"empty":        "",
	"513 bytes":    strings.Repeat("x", 513),
	"long runes":   strings.Repeat("€", 171), // 513 bytes, far fewer runes
	"huge":         strings.Repeat("x", 3<<20),
	"NUL":          "a\x00b",
	"NUL alone":    "\x00",
	"not UTF-8":    "a\xffb",
	"cut rune":     "a\xe2\x82",
	"surrogate":    "\xed\xa0\x80",
	"overlong NUL": "\xc0\x80",
}

// untouched asserts that in an etcd that nobody else uses there is no key under the prefix and no
// lease but those sessions.
func (b *bot) untouched(sessions ...*etcdcoord.Coordinator) {
	b.t.Helper()
	expected := make([]expect, 0, len(sessions))
	for range sessions {
		expected = append(expected, expect{0, "a session"})
	}
	b.leasesAre(expected...)
	for _, name := range b.keys("") {
		require.Contains(b.t, name, "v1/replicas/", "the registration and nothing else")
	}
	require.Len(b.t, b.keys(""), len(sessions))
}

func TestBadNamesAreRefusedAndLeaveNothing(t *testing.T) {
	t.Parallel()
	b := newBotOn(t, testetcd.New(t, testetcd.FastTicks))
	c := b.replica("a")
	before := b.proposals()
	ctx := soon(t)
	const good = "good"
	verbs := map[string]func(name string) error{
		"Reserve":                   func(name string) error { _, err := c.Reserve(ctx, name); return err },
		"Lead":                      func(name string) error { _, err := c.Lead(ctx, name); return err },
		"TryLead":                   func(name string) error { _, err := c.TryLead(ctx, name); return err },
		"Leases.Acquire, the key":   func(name string) error { _, err := c.Leases().Acquire(ctx, name, good, time.Second); return err },
		"Leases.Acquire, the owner": func(name string) error { _, err := c.Leases().Acquire(ctx, good, name, time.Second); return err },
		"Leases.Renew, the key":     func(name string) error { _, err := c.Leases().Renew(ctx, name, good, 1, time.Second); return err },
		"Leases.Renew, the owner":   func(name string) error { _, err := c.Leases().Renew(ctx, good, name, 1, time.Second); return err },
		"Leases.Release, the key":   func(name string) error { return c.Leases().Release(ctx, name, good, 1) },
		"Leases.Release, the owner": func(name string) error { return c.Leases().Release(ctx, good, name, 1) },
	}
	for verb, call := range verbs {
		for what, name := range badNames {
			err := call(name)
			require.ErrorIs(t, err, etcdcoord.ErrInvalidKey, "%s, %s", verb, what)
			require.Less(t, len(err.Error()), 2000, "%s, %s: names that are too long are not repeated", verb, what)
		}
	}
	// Also with a context that has ended: what is wrong for good comes first.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := c.Reserve(ended, "")
	require.ErrorIs(t, err, etcdcoord.ErrInvalidKey)

	for _, ttl := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
		_, err := c.Leases().Acquire(ctx, good, good, ttl)
		require.ErrorIs(t, err, etcdcoord.ErrInvalidTTL, "%v", ttl)
		_, err = c.Leases().Renew(ctx, good, good, 1, ttl)
		require.ErrorIs(t, err, etcdcoord.ErrInvalidTTL, "%v", ttl)
	}
	_, err = c.Leases().Acquire(ctx, good, good, math.MaxInt64)
	require.ErrorIs(t, err, etcdcoord.ErrInvalidTTL)
	require.Equal(t, before, b.proposals(), "none of it was for etcd to refuse")
	b.untouched(c)
	s := c.Stats()
	require.Zero(t, s.TurnsHeld+s.TicketsWaiting+s.Reserving+s.Leaving+s.Ghosts+s.Leading+s.Campaigning, "%+v", s)
}

func TestBadConfigIsRefusedFieldByField(t *testing.T) {
	t.Parallel()
	b := newBotOn(t, testetcd.New(t, testetcd.FastTicks))
	client := b.etcd.Client(t)
	type config = etcdcoord.Config
	for what, bad := range map[string]struct {
		cfg   config
		field string
		says  []string // both values, where there are two
	}{
		"negative RenewEvery":          {config{RenewEvery: -time.Second}, "RenewEvery", []string{"-1s"}},
		"negative SafetyMargin":        {config{SafetyMargin: -1}, "SafetyMargin", []string{"-1ns"}},
		"negative HistoryTTL":          {config{HistoryTTL: -time.Hour}, "HistoryTTL", []string{"-1h"}},
		"negative MaxHold":             {config{MaxHold: -time.Minute}, "MaxHold", []string{"-1m"}},
		"negative RequestTimeout":      {config{RequestTimeout: math.MinInt64}, "RequestTimeout", []string{"-2562047h"}},
		"margin of the whole TTL":      {config{SessionTTL: 7 * time.Second, SafetyMargin: 7 * time.Second}, "SafetyMargin", []string{"7s", "SessionTTL 7s"}},
		"margin above the TTL":         {config{SessionTTL: 4 * time.Second, SafetyMargin: time.Minute}, "SafetyMargin", []string{"1m0s", "4s"}},
		"margin above the default TTL": {config{SafetyMargin: 11 * time.Second}, "SafetyMargin", []string{"11s", "10s"}},
		"renewal at the window's end": {
			config{SessionTTL: 8 * time.Second, SafetyMargin: 3 * time.Second, RenewEvery: 5 * time.Second},
			"RenewEvery",
			[]string{"5s", "SessionTTL - SafetyMargin = 5s"},
		},
		"renewal after the window": {config{SessionTTL: 6 * time.Second, RenewEvery: 9 * time.Second}, "RenewEvery", []string{"9s", "5s"}},
		"history below the TTL":    {config{SessionTTL: 20 * time.Second, HistoryTTL: 19 * time.Second}, "HistoryTTL", []string{"19s", "20s"}},
		"history below the rounded TTL": {
			config{SessionTTL: 1100 * time.Millisecond, HistoryTTL: 1500 * time.Millisecond}, "HistoryTTL", []string{"1.5s", "2s"},
		},
		"endless TTL":     {config{SessionTTL: math.MaxInt64}, "SessionTTL", []string{"2562047h"}},
		"endless history": {config{HistoryTTL: math.MaxInt64}, "HistoryTTL", []string{"2562047h"}},
		"long prefix":     {config{Prefix: strings.Repeat("p", 512) + "/"}, "Prefix", []string{"513", "512"}},
		"NUL in prefix":   {config{Prefix: "a\x00"}, "Prefix", []string{"NUL"}},
		"prefix no UTF-8": {config{Prefix: "\xff/"}, "Prefix", []string{"UTF-8"}},
		"long id":         {config{ReplicaID: strings.Repeat("€", 171)}, "ReplicaID", []string{"513", "512"}},
		"NUL in id":       {config{ReplicaID: "\x00"}, "ReplicaID", []string{"NUL"}},
		"id no UTF-8":     {config{ReplicaID: "a\xff"}, "ReplicaID", []string{"UTF-8"}},
	} {
		c, err := etcdcoord.New(client, bad.cfg)
		require.Nil(t, c, what)
		var e *etcdcoord.ConfigError
		require.ErrorAs(t, err, &e, what)
		require.ErrorIs(t, err, etcdcoord.ErrInvalidConfig, what)
		require.Equal(t, bad.field, e.Field, what)
		require.Contains(t, err.Error(), bad.field, what)
		for _, value := range bad.says {
			require.Contains(t, err.Error(), value, what)
		}
		if bad.field == "ReplicaID" {
			require.ErrorIs(t, err, etcdcoord.ErrInvalidKey, what)
		}
	}
	_, err := etcdcoord.New(nil, etcdcoord.Config{})
	var e *etcdcoord.ConfigError
	require.ErrorAs(t, err, &e)
	require.Equal(t, "client", e.Field)
	b.untouched()
}

func TestBoundaryConfigIsAccepted(t *testing.T) {
	t.Parallel()
	client := newBot(t).etcd.Client(t)
	for what, cfg := range map[string]etcdcoord.Config{
		"zero":                    {},
		"margin just below":       {SessionTTL: 2 * time.Second, SafetyMargin: 2*time.Second - 2, RenewEvery: 1},
		"renewal just in time":    {SessionTTL: 2 * time.Second, SafetyMargin: time.Second, RenewEvery: time.Second - 1},
		"history as long as TTL":  {SessionTTL: time.Minute, HistoryTTL: time.Minute},
		"TTL above the default":   {SessionTTL: 48 * time.Hour}, // of HistoryTTL
		"a century of history":    {HistoryTTL: 100 * 365 * 24 * time.Hour},
		"longest names":           {ReplicaID: strings.Repeat("x", 512), Prefix: strings.Repeat("p", 511)},
		"no prefix but the slash": {Prefix: "/"},
		"limits without end":      {MaxHold: math.MaxInt64, RequestTimeout: math.MaxInt64},
	} {
		_, err := etcdcoord.New(client, cfg)
		require.NoError(t, err, what)
	}
	one, err := etcdcoord.New(client, etcdcoord.Config{})
	require.NoError(t, err)
	two, err := etcdcoord.New(client, etcdcoord.Config{})
	require.NoError(t, err)
	require.NotEmpty(t, one.ReplicaID())
	require.NotEqual(t, one.ReplicaID(), two.ReplicaID(), "default ids do not clash")
}

// Whatever is accepted has to work: durations near the end of their range too.
func TestLongestDurationsWork(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.replica("a", func(cfg *etcdcoord.Config) {
		cfg.HistoryTTL, cfg.MaxHold, cfg.RequestTimeout = 250*365*24*time.Hour, math.MaxInt64, math.MaxInt64
	})
	takeAfter(t, c, nobody, false)
	takeAfter(t, c, "a", true)
	b.noTickets()
}

// F11, etcd#14857 and #11746: up, never down, and what etcd grants is what counts. The server's own
// minimum is a second here.
func TestSessionTTLIsRoundedUpToWhatEtcdGrants(t *testing.T) {
	t.Parallel()
	for asked, granted := range map[time.Duration]time.Duration{
		-1: etcdcoord.DefaultSessionTTL, 0: etcdcoord.DefaultSessionTTL, -time.Hour: etcdcoord.DefaultSessionTTL,
		1: time.Second, 500 * time.Millisecond: time.Second, time.Second: time.Second,
		1500 * time.Millisecond: 2 * time.Second, 2900 * time.Millisecond: 3 * time.Second,
		3 * time.Second: 3 * time.Second, 3*time.Second + 1: 4 * time.Second,
	} {
		t.Run(asked.String(), func(t *testing.T) {
			t.Parallel()
			newBot(t).hasTTL(asked, granted)
		})
	}
	t.Run("raised by a server with default settings", func(t *testing.T) {
		t.Parallel()
		newBotOn(t, testetcd.New(t)).hasTTL(time.Second, 2*time.Second)
	})
}

// hasTTL starts a replica and asks it, and etcd, about its session. So short a one may be lost, and
// followed by another, while they are asked.
func (b *bot) hasTTL(asked, granted time.Duration) {
	b.t.Helper()
	c := b.unstarted(b.etcd.Client(b.t), "a", ttl(asked), renewEvery(50*time.Millisecond))
	b.t.Cleanup(func() { stop(b.t, c) })
	require.Eventually(b.t, func() bool { return c.Start(soon(b.t)) == nil }, patience, time.Millisecond)
	var s etcdcoord.Stats
	var inEtcd int64
	require.Eventually(b.t, func() bool {
		s = c.Stats()
		lease, err := b.plain.TimeToLive(soon(b.t), clientv3.LeaseID(s.LeaseID))
		if err != nil || s.LeaseID == 0 || lease.TTL < 0 {
			return false
		}
		inEtcd = lease.GrantedTTL
		return true
	}, patience, time.Millisecond)
	require.Equal(b.t, granted, s.TTL)
	require.EqualValues(b.t, granted/time.Second, inEtcd)
	require.LessOrEqual(b.t, s.TrustLeft, granted-500*time.Millisecond)
}

func TestVerbsBeforeStartAndAfterStopSaySoAndLeaveNothing(t *testing.T) {
	t.Parallel()
	b := newBotOn(t, testetcd.New(t, testetcd.FastTicks))
	c := b.unstarted(b.etcd.Client(t), "a")
	verbs := map[string]func() error{
		"Reserve":        func() error { _, err := c.Reserve(soon(t), "chat"); return err },
		"Lead":           func() error { _, err := c.Lead(soon(t), "role"); return err },
		"TryLead":        func() error { _, err := c.TryLead(soon(t), "role"); return err },
		"Leases.Acquire": func() error { _, err := c.Leases().Acquire(soon(t), "k", "o", time.Second); return err },
		"Leases.Renew":   func() error { _, err := c.Leases().Renew(soon(t), "k", "o", 1, time.Second); return err },
		"Leases.Release": func() error { return c.Leases().Release(soon(t), "k", "o", 1) },
	}
	all := func(expected error, state string) {
		t.Helper()
		for verb, call := range verbs {
			require.ErrorIs(t, call(), expected, verb)
		}
		_, err := c.AcquireTurn(soon(t), nil)
		require.ErrorIs(t, err, etcdcoord.ErrForeignTicket)
		require.Equal(t, state, c.Stats().State)
		b.untouched()
	}
	all(etcdcoord.ErrNotStarted, "new")
	require.NoError(t, c.Start(soon(t)))
	b.untouched(c)
	require.NoError(t, c.Start(soon(t)), "idempotent")
	b.untouched(c)
	require.NoError(t, c.Stop(soon(t)))
	all(etcdcoord.ErrStopped, "stopped")
	require.NoError(t, c.Stop(soon(t)), "idempotent")
	all(etcdcoord.ErrStopped, "stopped")
	require.NoError(t, c.Start(soon(t)))
	require.Equal(t, "running", c.Stats().State)
	release(t, take(t, c, "chat"))
	require.NoError(t, c.Stop(soon(t)))
	require.Equal(t, []string{"v1/turns/chat/holder"}, b.keys(""))

	never := b.unstarted(b.etcd.Client(t), "b")
	require.NoError(t, never.Stop(soon(t)))
	_, err := never.Reserve(soon(t), "chat")
	require.ErrorIs(t, err, etcdcoord.ErrStopped)
}

// A note is the caller's, and may be larger than etcd takes.
func TestHugeNoteIsRefusedAndLeavesNoPlace(t *testing.T) {
	t.Parallel()
	b := newBot(t)
	c := b.replica("a")
	for _, size := range []int{2 << 20, 3 << 20} {
		_, err := c.Reserve(soon(t), "chat", etcdcoord.WithNote(strings.Repeat("n", size)))
		unavailable(t, err, etcdcoord.Backend)
		b.noTickets()
	}
	ticket, err := c.Reserve(soon(t), "chat", etcdcoord.WithNote("\x00\xff \"note\" "+strings.Repeat("n", 500<<10)))
	require.NoError(t, err)
	release(t, acquire(t, c, ticket))
	require.Eventually(t, func() bool { return c.Stats().Ghosts == 0 }, patience, time.Millisecond)
	require.Zero(t, c.Stats().SessionsLost, fmt.Sprint(c.Stats()))
}
