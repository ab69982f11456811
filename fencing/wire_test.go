package fencing_test

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// The requests of a provider.
const (
	read   = "Range"
	grant  = "LeaseGrant"
	write  = "Txn"
	revoke = "LeaseRevoke"
)

// wire is what lies between a provider and etcd. A test can lose or delay any request, or its answer.
type wire struct {
	mu      sync.Mutex // guards the fields below
	faults  map[string]fault
	granted []clientv3.LeaseID
	sent    map[string]int
}

// fault takes the place of a request. send makes the request. It may be called when the fault has
// returned, and the answer is then lost.
type fault func(ctx context.Context, send func(ctx context.Context) error) error

// newWire returns a client on the shared etcd with a wire to it.
func newWire(t *testing.T) (*wire, *clientv3.Client) { return wireTo(t, testetcd.Shared(t)) }

func wireTo(t *testing.T, c *testetcd.Cluster) (*wire, *clientv3.Client) {
	w := &wire{faults: make(map[string]fault), sent: make(map[string]int)}
	return w, c.Client(t, func(cfg *clientv3.Config) {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(w.intercept))
	})
}

func (w *wire) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	name := method[strings.LastIndexByte(method, '/')+1:]
	w.mu.Lock()
	f := w.faults[name]
	w.sent[name]++
	if g, ok := req.(*etcdserverpb.LeaseGrantRequest); ok {
		w.granted = append(w.granted, clientv3.LeaseID(g.ID))
	}
	w.mu.Unlock()
	if f == nil {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	// A late answer must touch neither the caller's nor what his options point to.
	answer := reflect.New(reflect.TypeOf(reply).Elem())
	err := f(ctx, func(ctx context.Context) error {
		return invoke(ctx, method, req, answer.Interface(), cc, grpc.WaitForReady(true))
	})
	if err == nil {
		reflect.ValueOf(reply).Elem().Set(answer.Elem())
	}
	return err
}

// set replaces every request of that name, until mended. nil mends.
func (w *wire) set(name string, f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[name] = f
}

// leases are all etcd leases that were asked for so far.
func (w *wire) leases() []clientv3.LeaseID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]clientv3.LeaseID(nil), w.granted...)
}

// count is how many requests of that name were made.
func (w *wire) count(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent[name]
}

// loseAnswer delivers the request and not the answer.
func loseAnswer(ctx context.Context, send func(context.Context) error) error {
	if err := send(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// loseRequest delivers nothing.
func loseRequest(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// late is a request that is delivered long after its caller gave up.
type late struct {
	kept chan func() error // what delivers it
}

func newLate() late { return late{kept: make(chan func() error, 1)} }

// fault keeps the first request and lets later ones pass.
func (l late) fault(ctx context.Context, send func(context.Context) error) error {
	select {
	case l.kept <- func() error { return send(context.WithoutCancel(ctx)) }:
		<-ctx.Done()
		return ctx.Err()
	default:
		return send(ctx)
	}
}

// gate holds requests back until it is opened.
type gate chan struct{}

func (g gate) fault(ctx context.Context, send func(context.Context) error) error {
	select {
	case <-g:
		return send(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// passKey marks the context of calls that no fault of unlessPassed touches.
type passKey struct{}

func passing(ctx context.Context) context.Context { return context.WithValue(ctx, passKey{}, true) }

func unlessPassed(f fault) fault {
	return func(ctx context.Context, send func(context.Context) error) error {
		if ctx.Value(passKey{}) != nil {
			return send(ctx)
		}
		return f(ctx, send)
	}
}
