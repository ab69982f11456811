package tickets_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tap stands between a replica and etcd, and does to single requests what networks and servers do.
type tap struct {
	base *clientv3.Client

	mu    sync.Mutex // guards the fields below
	rules []*rule
	calls []string // the kinds of all requests, in order
	kept  []kept
	after int // how many requests after being kept one is delivered by itself; 0: never
}

// call is one request, named after what it is for.
type call struct {
	kind string
	key  string // the first one in etcd that it names, if any
	puts bool   // a full etcd refuses it
}

// fault is what happens to one request. The zero value lets it pass.
type fault struct {
	hold  <-chan struct{} // it is sent when this is closed
	skip  bool            // it is not sent
	keep  bool            // it is not sent now: deliver does
	stall <-chan struct{} // its answer goes back when this is closed
	err   error           // what the caller hears
}

type rule struct {
	match func(call) bool
	left  int // how often it applies; negative: always
	fault fault
	hit   chan string // gets the kind of each request that it applied to
	back  chan error  // gets what etcd answered, before the caller does
}

type kept struct {
	kind string
	at   int // how many requests there were before it
	send func(context.Context) (succeeded bool, err error)
}

// What a caller hears when an answer is lost, in the two forms that it takes.
var (
	errCut     = status.Error(codes.Unavailable, "transport is closing")
	errTimeout = context.DeadlineExceeded
)

var (
	lose        = fault{err: errCut}                                   // applied, answer lost
	drop        = fault{skip: true, err: errTimeout}                   // never arrives
	keep        = fault{keep: true, err: errTimeout}                   // given up on, arrives later
	fullApplied = fault{err: rpctypes.ErrNoSpace}                      // "no space", and applied all the same
	full        = fault{skip: true, err: rpctypes.ErrNoSpace}          // "no space", not applied
	leaseless   = fault{skip: true, err: rpctypes.ErrLeaseNotFound}    // a lease in it is gone
	denied      = fault{skip: true, err: rpctypes.ErrPermissionDenied} // not allowed
)

// client is a client whose requests go through the tap. It shares base's connection.
func (tp *tap) client() *clientv3.Client {
	c := clientv3.NewCtxClient(context.Background())
	c.KV, c.Lease, c.Watcher = tappedKV{tp.base.KV, tp}, tappedLease{tp.base.Lease, tp}, tp.base.Watcher
	return c
}

// on makes the fault happen to the next so many matching requests (negative: to all).
func (tp *tap) on(match func(call) bool, times int, f fault) *rule {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	r := &rule{match: match, left: times, fault: f, hit: make(chan string, 1000), back: make(chan error, 1000)}
	tp.rules = append(tp.rules, r)
	return r
}

// first makes the fault happen to the next request of that kind.
func (tp *tap) first(kind string, f fault) *rule { return tp.on(isA(kind), 1, f) }

// every makes the fault happen to all requests of that kind, until off.
func (tp *tap) every(kind string, f fault) *rule { return tp.on(isA(kind), -1, f) }

func (tp *tap) off(r *rule) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	r.left = 0
}

func isA(kind string) func(call) bool { return func(c call) bool { return c.kind == kind } }

// count is how many requests of that kind there were, sent or not.
func (tp *tap) count(kind string) (n int) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	for _, k := range tp.calls {
		if kind == "" || k == kind {
			n++
		}
	}
	return n
}

func (tp *tap) decide(ctx context.Context, c call) (f fault, by *rule) {
	tp.mu.Lock()
	var due []kept
	if tp.after > 0 {
		for len(tp.kept) > 0 && len(tp.calls)-tp.kept[0].at >= tp.after {
			due, tp.kept = append(due, tp.kept[0]), tp.kept[1:]
		}
	}
	for _, r := range tp.rules {
		if r.left != 0 && r.match(c) {
			r.left--
			f, by = r.fault, r
			r.hit <- c.kind
			break
		}
	}
	tp.calls = append(tp.calls, c.kind)
	tp.mu.Unlock()
	for _, k := range due {
		_, _ = k.send(context.WithoutCancel(ctx))
	}
	return f, by
}

// delivered is what became of a request that came late.
type delivered struct {
	kind      string
	succeeded bool // of a transaction: its compares held
	err       error
}

// deliver lets etcd have everything that was kept back.
func (tp *tap) deliver(ctx context.Context) (all []delivered) {
	tp.mu.Lock()
	late := tp.kept
	tp.kept = nil
	tp.mu.Unlock()
	for _, k := range late {
		ok, err := k.send(ctx)
		all = append(all, delivered{k.kind, ok, err})
	}
	return all
}

func through[R any](tp *tap, ctx context.Context, c call, send func(context.Context) (R, error)) (R, error) {
	var none R
	f, by := tp.decide(ctx, c)
	if err := await(ctx, f.hold); err != nil {
		return none, err
	}
	if f.keep {
		tp.mu.Lock()
		tp.kept = append(tp.kept, kept{c.kind, len(tp.calls) - 1, func(ctx context.Context) (bool, error) {
			r, err := send(ctx)
			txn, ok := any(r).(*clientv3.TxnResponse)
			return ok && err == nil && txn.Succeeded, err
		}})
		tp.mu.Unlock()
	}
	if f.skip || f.keep {
		return none, f.err
	}
	r, err := send(ctx)
	if by != nil {
		by.back <- err
	}
	if gaveUp := await(ctx, f.stall); gaveUp != nil {
		return none, gaveUp
	}
	if err == nil && f.err != nil {
		return none, f.err
	}
	return r, err
}

func await(ctx context.Context, c <-chan struct{}) error {
	if c == nil {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// happened waits until the rule has applied to a request, and tells its kind.
func (r *rule) happened(t *testing.T) string {
	t.Helper()
	select {
	case kind := <-r.hit:
		return kind
	case <-within(t, patience).Done():
		require.FailNow(t, "the request never came")
		return ""
	}
}

// answered waits until etcd has answered a request that the rule applied to.
func (r *rule) answered(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.back:
		require.NoError(t, err)
	case <-within(t, patience).Done():
		require.FailNow(t, "etcd never answered")
	}
}

// anyPut says whether etcd counts a transaction as one that needs space: puts in branches that are
// not taken count as well.
func anyPut(ops []clientv3.Op) bool {
	return slices.ContainsFunc(ops, func(op clientv3.Op) bool {
		if op.IsTxn() {
			_, then, otherwise := op.Txn()
			return anyPut(then) || anyPut(otherwise)
		}
		return op.IsPut()
	})
}

// kindOf names a transaction after what it is for.
func kindOf(cmps []clientv3.Cmp, then, otherwise []clientv3.Op) string {
	first := then[0]
	switch {
	case len(cmps) == 0 && first.Rev() != 0:
		return "skipped"
	case len(cmps) == 0 && strings.Contains(string(first.KeyBytes()), "/tickets/"):
		return "ghost" // its key, and then the registration; an audit asks the other way round
	case len(cmps) == 0:
		return "audit"
	case first.IsTxn():
		return "reserve"
	case first.IsGet():
		return "grant"
	case first.IsDelete() && len(then) > 1:
		return "leave"
	case first.IsDelete():
		return "stray"
	case strings.Contains(string(first.KeyBytes()), "/inbox/"):
		return "nudge"
	case strings.Contains(string(first.KeyBytes()), "/replicas/"):
		return [...]string{"mark", "register", "settle"}[len(otherwise)]
	}
	return "other transaction"
}
