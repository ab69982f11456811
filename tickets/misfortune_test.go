package tickets_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// misfortune is one way in which a request can go wrong, and when it arrives if it does so late.
type misfortune struct {
	name  string
	fault fault
	after int // requests later, see tap; 0: at the end of the life
	kinds map[string]bool
}

func kinds(names ...string) map[string]bool {
	set := make(map[string]bool)
	for _, name := range names {
		set[name] = true
	}
	return set
}

var (
	reads  = kinds("look", "peers", "inbox", "guess", "ghost")
	writes = kinds("session lease", "history lease", "register", "reserve", "grant", "leave", "settle", "nudge", "mark", "revoke")
	// A full etcd refuses puts and leases. It answers reads, deletes and revokes.
	puts = kinds("session lease", "history lease", "register", "reserve", "grant", "leave", "settle", "nudge", "mark")
	// What fails when a lease that it names is gone.
	leased = kinds("reserve", "grant", "leave", "nudge")
)

var misfortunes = []misfortune{
	{"it fails", drop, 0, reads},
	{"its answer is lost", lose, 0, writes},
	{"it is dropped", drop, 0, writes},
	{"it arrives one request late", keep, 1, writes},
	{"it arrives three requests late", keep, 3, writes},
	{"it arrives at the very end", keep, 0, writes},
	{"etcd is full and applies it", fullApplied, 0, puts},
	{"etcd is full", full, 0, puts},
	{"a lease is gone", leaseless, 0, leased},
}

// swallows: a nudge that etcd refuses is not repeated. It is one of the few things that need the audit.
func (m misfortune) swallows(kind string) bool {
	return kind == "nudge" && m.fault.skip && m.fault.err != errTimeout
}

// before says what has gone wrong already when the misfortune happens, so that the clean-up runs,
// and which requests of the clean-up it happens to.
var before = []struct {
	what    string
	prepare func(a *tap)
	kinds   map[string]bool
}{
	{"no guess at the next in line", func(a *tap) { a.every("guess", drop) }, kinds("nudge")},
	{"the first Reserve was applied, its answer lost", func(a *tap) { a.first("reserve", lose) }, kinds("settle", "leave")},
	{"the first Reserve comes late", func(a *tap) { a.first("reserve", keep) }, kinds("settle")},
	{"the first Reserve got no space, and was applied", func(a *tap) { a.first("reserve", fullApplied) }, kinds("ghost", "leave")},
	{"a history lease is gone", func(a *tap) { a.first("reserve", leaseless) }, kinds("reserve")},
	{"the first Grant was applied, its answer lost", func(a *tap) { a.first("grant", lose) }, kinds("grant")},
}

// TestWhateverHappensToAnyOneRequestEveryPromiseIsKept lives one whole life of a replica beside two
// others again and again, and each time something else happens to another one of its requests.
func TestWhateverHappensToAnyOneRequestEveryPromiseIsKept(t *testing.T) {
	t.Parallel()
	client := testetcd.Shared(t).Client(t)
	quiet := newLife(t, client, func(*tap) {})
	require.NoError(t, quiet.live(within(t, time.Minute)))
	quiet.knewEverybody(t)
	lives := lives{t: t, client: client, hit: make(map[string]int)}
	lives.group.SetLimit(16)
	for _, m := range misfortunes {
		nth := make(map[string]int)
		for _, kind := range quiet.a.calls {
			if !m.kinds[kind] {
				continue
			}
			nth[kind]++
			n := nth[kind]
			lives.live(fmt.Sprintf("%s number %d: %s", kind, n, m.name), m.swallows(kind), func(a *tap) {
				a.after = m.after
				seen := 0
				a.on(func(c call) bool {
					if c.kind == kind {
						seen++
					}
					return c.kind == kind && seen == n
				}, 1, m.fault)
			})
		}
		for _, b := range before {
			for kind := range b.kinds {
				if m.kinds[kind] {
					lives.live(fmt.Sprintf("%s, then %s: %s", b.what, kind, m.name), m.swallows(kind), func(a *tap) {
						b.prepare(a)
						a.after = m.after
						a.on(isA(kind), 1, m.fault)
					})
				}
			}
		}
	}
	_ = lives.group.Wait()
	t.Logf("hit: %v", lives.hit)
	for kind := range writes {
		require.NotZero(t, lives.hit[kind], "nothing ever happened to %q", kind)
	}
	for kind := range reads {
		require.NotZero(t, lives.hit[kind], "nothing ever happened to %q", kind)
	}
}

// lives are lived a few at a time.
type lives struct {
	t      *testing.T
	client *clientv3.Client
	group  errgroup.Group

	mu  sync.Mutex
	hit map[string]int // requests to which something happened
}

func (ls *lives) live(what string, audits bool, prepare func(*tap)) {
	l := newLife(ls.t, ls.client, prepare)
	l.audits = audits
	ls.group.Go(func() error {
		if err := l.live(within(ls.t, time.Minute)); err != nil {
			ls.t.Errorf("%s: %v\n%v", what, err, l.a.calls)
		}
		ls.mu.Lock()
		defer ls.mu.Unlock()
		for _, r := range l.a.rules {
			close(r.hit)
			for kind := range r.hit {
				ls.hit[kind]++
			}
		}
		return nil
	})
}
