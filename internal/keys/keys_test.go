package keys_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/internal/keys"
)

// The layout is a wire format: replicas of different versions share it. A failure here means that
// the change needs a new version segment, not a new expectation.
func TestLayoutIsPinned(t *testing.T) {
	t.Parallel()
	s := keys.New("/bot")
	const lease = 0x7587_0a1b_2c3d_4e5f
	for want, got := range map[string]string{
		"/bot/":                           s.Prefix(),
		"/bot/v1/replicas/":               s.Replicas(),
		"/bot/v1/replicas/host-1%2F42":    s.Replica("host-1/42"),
		"/bot/v1/turns/":                  s.Turns(),
		"/bot/v1/turns/room%2F1/tickets/": s.Tickets("room/1"),
		"/bot/v1/turns/room%2F1/tickets/75870a1b2c3d4e5f-":   s.TicketsOf("room/1", lease),
		"/bot/v1/turns/room%2F1/tickets/75870a1b2c3d4e5f-1f": s.Ticket("room/1", lease, 31),
		"/bot/v1/turns/room%2F1/holder":                      s.Holder("room/1"),
		"/bot/v1/inbox/75870a1b2c3d4e5f/":                    s.Inbox(lease),
		"/bot/v1/inbox/75870a1b2c3d4e5f/1f-room%2F1":         s.Nudge("room/1", lease, 31),
		"/bot/v1/elections/poll%20er":                        s.Election("poll er"),
		"/bot/v1/elections/poll%20er/":                       s.Candidates("poll er"),
		"/bot/v1/elections/poll%20er/75870a1b2c3d4e5f":       s.Candidate("poll er", lease),
		"/bot/v1/leases/":                                    s.Leases(),
		"/bot/v1/leases/a.b_c:d@e-f%25%F0%9F%99%82":          s.Lease("a.b_c:d@e-f%🙂"),
		"/bot/v1/leases/%00%09%0A%20":                        s.Lease("\x00\t\n "),
	} {
		require.Equal(t, want, got)
	}
	require.Equal(t, "/bot/", keys.New("/bot/").Prefix())
	require.Equal(t, "/", keys.New("").Prefix())
	require.Equal(t, "/bot//", keys.New("/bot//").Prefix(), "only a missing slash is added")
}

// awkward are names that have been mistaken for one another somewhere.
var awkward = []string{
	"a", "A", "a/", "/a", "a//b", "a/b", "room/", "room", "roo", "/", "//", ".", "..", "../a", " ", " a", "a ", "%", "%2F", "%25", "%252F",
	"tickets", "a/tickets/", "holder", "a/holder", "-", "a-b", "0-a", "\n", "\t", "é", "e\u0301", "👩‍👩‍👧‍👦", "房间", "\u2028", "\x7f",
	strings.Repeat("x", keys.MaxNameBytes), strings.Repeat("/", keys.MaxNameBytes), strings.Repeat("é", keys.MaxNameBytes/2), strings.Repeat("🙂", keys.MaxNameBytes/4),
}

func TestEveryNameComesBackFromEveryKeyItIsIn(t *testing.T) {
	t.Parallel()
	s := keys.New("/p/")
	for _, name := range awkward {
		require.NoError(t, keys.Check("key", name))
		back, ok := keys.Unescape(keys.Escape(name))
		require.True(t, ok, "%q", name)
		require.Equal(t, name, back)

		id, ok := s.ParseReplica(s.Replica(name))
		require.True(t, ok, "%q", name)
		require.Equal(t, name, id)
		for _, lease := range []int64{0, 1, 0xabc, math.MaxInt64} {
			for _, slot := range []int{0, 1, 255, math.MaxInt32} {
				key, l, n, ok := s.ParseTicket(s.Ticket(name, lease, slot))
				require.True(t, ok, "%q", name)
				require.Equal(t, name, key)
				require.Equal(t, lease, l)
				require.Equal(t, slot, n)
				key, n, ok = s.ParseNudge(s.Nudge(name, lease, slot), lease)
				require.True(t, ok, "%q", name)
				require.Equal(t, name, key)
				require.Equal(t, slot, n)
			}
		}
	}
}

func TestNoTreeContainsAnother(t *testing.T) {
	t.Parallel()
	s := keys.New("/p/")
	for _, a := range awkward {
		for _, b := range awkward {
			if a == b {
				continue
			}
			require.NotEqual(t, s.Lease(a), s.Lease(b))
			for tree, in := range map[string][]string{
				s.Tickets(a):    {s.Ticket(b, 1, 1), s.Holder(b), s.Tickets(b)},
				s.Candidates(a): {s.Candidate(b, 1), s.Candidates(b)},
			} {
				for _, key := range in {
					require.False(t, strings.HasPrefix(key, tree), "%q is in %q", key, tree)
				}
			}
		}
		require.False(t, strings.HasPrefix(s.Holder(a), s.Tickets(a)), "the record is no ticket")
	}
	// Nor is one lease's part of a key's tickets a part of another's, or one inbox of another's.
	require.False(t, strings.HasPrefix(s.Ticket("k", 0x12, 1), s.TicketsOf("k", 0x1)))
	require.False(t, strings.HasPrefix(s.Nudge("k", 0x12, 1), s.Inbox(0x1)))
}

func TestWhatIsNotOursDoesNotParse(t *testing.T) {
	t.Parallel()
	s := keys.New("/p/")
	for _, etcdKey := range []string{
		"", "/", "/p/", "/p/v1/turns/", "/q/v1/turns/k/tickets/1-1", "/p/v2/turns/k/tickets/1-1", "/p/v1/turns/k/tickets/",
		"/p/v1/turns/k/tickets/1", "/p/v1/turns/k/tickets/-1", "/p/v1/turns/k/tickets/1-", "/p/v1/turns/k/tickets/1-1-1",
		"/p/v1/turns/k/tickets/01-1", "/p/v1/turns/k/tickets/1-01", "/p/v1/turns/k/tickets/A-1", "/p/v1/turns/k/tickets/1-g",
		"/p/v1/turns/k/tickets/+1-1", "/p/v1/turns/k/tickets/1-+1", "/p/v1/turns/k/tickets/8000000000000000-1", "/p/v1/turns/k/tickets/1-1/",
		"/p/v1/turns/k/tickets/0x1-1", "/p/v1/turns/k/tickets/1_0-1", "/p/v1/turns/k/tickets/1-1 ", "/p/v1/turns/k/tickets/ 1-1",
		"/p/v1/turns//tickets/1-1", "/p/v1/turns/a/b/tickets/1-1", "/p/v1/turns/%2f/tickets/1-1", "/p/v1/turns/a b/tickets/1-1", "/p/v1/turns/k/holder",
	} {
		_, _, _, ok := s.ParseTicket(etcdKey)
		require.False(t, ok, "%q", etcdKey)
	}
	for _, etcdKey := range []string{"", "/p/v1/replicas/", "/p/v1/replicas", "/q/v1/replicas/a", "/p/v1/replicas/a/b", "/p/v1/replicas/%41", "/p/v1/replicas/%0"} {
		_, ok := s.ParseReplica(etcdKey)
		require.False(t, ok, "%q", etcdKey)
	}
	for _, etcdKey := range []string{"", "/p/v1/inbox/1/", "/p/v1/inbox/1/1", "/p/v1/inbox/1/1-", "/p/v1/inbox/1/-k", "/p/v1/inbox/1/01-k", "/p/v1/inbox/2/1-k", "/p/v1/inbox/1/1-%2f"} {
		_, _, ok := s.ParseNudge(etcdKey, 1)
		require.False(t, ok, "%q", etcdKey)
	}
}

func TestSlotsBeyondAnIntAreNotCutDown(t *testing.T) {
	t.Parallel()
	s := keys.New("/p/")
	for _, slot := range []string{"7fffffffffffffff", "100000000", "ffffffff"} {
		_, _, n, ok := s.ParseTicket("/p/v1/turns/k/tickets/1-" + slot)
		require.True(t, !ok || s.Ticket("k", 1, n) == "/p/v1/turns/k/tickets/1-"+slot, "%s became %d", slot, n)
		_, n, ok = s.ParseNudge("/p/v1/inbox/1/"+slot+"-k", 1)
		require.True(t, !ok || s.Nudge("k", 1, n) == "/p/v1/inbox/1/"+slot+"-k", "%s became %d", slot, n)
	}
}

func TestCheckRefusesWhatCannotBeAName(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"":                       "owner is empty",
		strings.Repeat("x", 513): "owner has 513 bytes, at most 512 are allowed",
		"a\x00b":                 "NUL",
		"\x00":                   "NUL",
		"a\xffb":                 "not valid UTF-8",
		"\xc0\xaf":               "not valid UTF-8", // an overlong slash
		"\xed\xa0\x80":           "not valid UTF-8", // half of a surrogate pair
		"é"[:1]:                  "not valid UTF-8",
	} {
		err := keys.Check("owner", name)
		require.ErrorIs(t, err, keys.ErrInvalid, "%q", name)
		require.ErrorContains(t, err, text)
	}
}

// Everything that Unescape accepts is exactly what Escape writes, so no two keys stand for one name.
func TestUnescapeAcceptsOnlyTheOneSpelling(t *testing.T) {
	t.Parallel()
	for _, escaped := range []string{
		"", "%", "%2", "a%", "a%2", "%2f", "%2g", "%G0", "%41", "%2D", "%2E", "%5F", "%3A", "%40", "%30", "a/b", "a b", "é", "%00", "a%00",
		"%FF", "%C0%AF", "%25%", "%%25", "+", "~", "a=b", "%-1", "%+1", "% 1", strings.Repeat("x", 513), strings.Repeat("%2F", 513),
	} {
		name, ok := keys.Unescape(escaped)
		require.False(t, ok, "%q became %q", escaped, name)
		require.Empty(t, name)
	}
	for b := range 256 { // every byte on its own
		plain, lower, upper := string([]byte{byte(b)}), fmt.Sprintf("%%%02x", b), fmt.Sprintf("%%%02X", b)
		var accepted []string
		for _, candidate := range slices.Compact([]string{plain, lower, upper}) {
			if name, ok := keys.Unescape(candidate); ok {
				require.Equal(t, plain, name)
				accepted = append(accepted, candidate)
			}
		}
		if b == 0 || b >= 0x80 {
			require.Empty(t, accepted, "byte %x", b)
		} else {
			require.Equal(t, []string{keys.Escape(plain)}, accepted, "byte %x", b)
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, name := range awkward {
		f.Add(name)
		f.Add(keys.Escape(name))
	}
	f.Add("%2f")
	f.Add("%41")
	f.Add("a\xff")
	s := keys.New("/p/")
	f.Fuzz(func(t *testing.T, x string) {
		// As a name: a round trip, and nothing in it that could be structure.
		escaped := keys.Escape(x)
		if strings.ContainsAny(escaped, "/ \x00") {
			t.Fatalf("Escape(%q) = %q", x, escaped)
		}
		back, ok := keys.Unescape(escaped)
		if valid := keys.Check("key", x) == nil; ok != valid || (ok && back != x) {
			t.Fatalf("%q is valid: %v; came back as %q, %v", x, valid, back, ok)
		}
		// As an escaped name: accepted only if it is what Escape writes.
		if name, ok := keys.Unescape(x); ok && keys.Escape(name) != x {
			t.Fatalf("%q and %q both stand for %q", x, keys.Escape(name), name)
		}
		// As a key in etcd: what parses is what we would have written.
		if key, lease, slot, ok := s.ParseTicket(s.Turns() + x); ok && s.Ticket(key, lease, slot) != s.Turns()+x {
			t.Fatalf("%q parses as %q, %x, %x", x, key, lease, slot)
		}
		if key, slot, ok := s.ParseNudge(s.Inbox(1)+x, 1); ok && s.Nudge(key, 1, slot) != s.Inbox(1)+x {
			t.Fatalf("%q parses as %q, %x", x, key, slot)
		}
	})
}
