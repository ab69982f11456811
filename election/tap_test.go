package election_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// tap sits between a client and etcd, and plays tricks with transactions.
type tap struct {
	mu    sync.Mutex // guards the fields below
	trick func(*pb.TxnRequest) trick
	held  []func() error // transactions kept back
	seen  int            // transactions on which a trick was played
	after func()         // called after each trick
	ahead func(*pb.TxnRequest)
	sees  func(*pb.TxnRequest, *pb.TxnResponse)
}

type txnRequest = pb.TxnRequest

type trick int

const (
	pass       trick = iota
	loseAnswer       // etcd applies it, the client hears of an error
	keepBack         // the client hears of an error, and etcd gets it when deliver is called
	loseBoth         // etcd never gets it
)

func (tp *tap) client(t *testing.T, cluster *testetcd.Cluster) *clientv3.Client {
	t.Helper()
	return cluster.Client(t, func(cfg *clientv3.Config) {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(tp.intercept))
	})
}

// play makes the tap play the trick on what matches, until the next play.
func (tp *tap) play(what trick, matches func(*pb.TxnRequest) bool) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.seen, tp.after = 0, func() {}
	tp.trick = func(r *pb.TxnRequest) trick {
		if matches(r) {
			return what
		}
		return pass
	}
}

func (tp *tap) stop() { tp.play(pass, func(*pb.TxnRequest) bool { return false }) }

// onTrick makes the tap call f after each trick, before the client hears of it.
func (tp *tap) onTrick(f func()) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.after = f
}

// before calls f with every transaction before etcd gets it.
func (tp *tap) before(f func(*pb.TxnRequest)) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.ahead = f
}

// observe calls f with every transaction that passes, before the client has the answer.
func (tp *tap) observe(f func(*pb.TxnRequest, *pb.TxnResponse)) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	tp.sees = f
}

// played is how often the trick was played.
func (tp *tap) played() int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return tp.seen
}

// deliver lets etcd have what was kept back.
func (tp *tap) deliver() error {
	tp.mu.Lock()
	held := tp.held
	tp.held = nil
	tp.mu.Unlock()
	for _, send := range held {
		if err := send(); err != nil {
			return err
		}
	}
	return nil
}

func (tp *tap) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	txn, ok := req.(*pb.TxnRequest)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	tp.mu.Lock()
	ahead := tp.ahead
	tp.mu.Unlock()
	if ahead != nil {
		ahead(txn)
	}
	tp.mu.Lock()
	what := pass
	if tp.trick != nil {
		what = tp.trick(txn)
	}
	if what != pass {
		tp.seen++
	}
	if what == keepBack {
		tp.held = append(tp.held, func() error {
			return invoke(context.WithoutCancel(ctx), method, req, new(pb.TxnResponse), cc, opts...)
		})
	}
	after, sees := tp.after, tp.sees
	tp.mu.Unlock()
	if what != pass {
		defer after()
	}
	switch what {
	case pass:
		err := invoke(ctx, method, req, reply, cc, opts...)
		if err == nil && sees != nil {
			sees(txn, reply.(*pb.TxnResponse))
		}
		return err
	case loseAnswer:
		if err := invoke(ctx, method, req, new(pb.TxnResponse), cc, opts...); err != nil {
			return err
		}
	}
	// Unknown, because the client tries again by itself only after some of the other codes.
	return status.Error(codes.Unknown, "the answer was lost")
}

// puts matches transactions that put a key with this prefix, deletes those that delete one.
func puts(prefix string) func(*pb.TxnRequest) bool {
	return func(r *pb.TxnRequest) bool {
		for _, op := range r.Success {
			if put := op.GetRequestPut(); put != nil && strings.HasPrefix(string(put.Key), prefix) {
				return true
			}
		}
		return false
	}
}

func deletes(prefix string) func(*pb.TxnRequest) bool {
	return func(r *pb.TxnRequest) bool {
		for _, op := range r.Success {
			if del := op.GetRequestDeleteRange(); del != nil && strings.HasPrefix(string(del.Key), prefix) {
				return true
			}
		}
		return false
	}
}
