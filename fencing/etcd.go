package fencing

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/keys"
)

// LeaseConfig configures NewLeaseProvider. The zero value is usable.
type LeaseConfig struct {
	// Prefix of all keys in etcd; it gets a final slash. Providers and coordinators with the same
	// prefix share their lease keys. Default "/etcdcoord/".
	Prefix string

	// RequestTimeout bounds a verb whose context has no deadline. Default 5s.
	RequestTimeout time.Duration

	// Logger gets warnings about records that cannot be read and clean-up that does not succeed.
	// Default: nothing is logged.
	Logger *slog.Logger
}

const (
	defaultPrefix         = "/etcdcoord/"
	defaultRequestTimeout = 5 * time.Second
)

func (cfg LeaseConfig) withDefaults() (LeaseConfig, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = defaultPrefix
	}
	if !utf8.ValidString(cfg.Prefix) || strings.IndexByte(cfg.Prefix, 0) >= 0 {
		return cfg, fmt.Errorf("%w: Prefix %q must be UTF-8 without NUL", ErrInvalidConfig, cfg.Prefix)
	}
	if cfg.RequestTimeout < 0 {
		return cfg, fmt.Errorf("%w: RequestTimeout %v is negative, use 0 for %v", ErrInvalidConfig, cfg.RequestTimeout, defaultRequestTimeout)
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = defaultRequestTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg, nil
}

// EtcdLeases is the LeaseProvider on etcd. The package comment says how it works. It may be used
// concurrently.
type EtcdLeases struct {
	client  *clientv3.Client
	keys    keys.Schema
	timeout time.Duration
	log     *slog.Logger

	verbs    *underWay
	chores   *chores
	ends     *ends
	releases releases

	mu     sync.Mutex          // guards the field below
	warned map[string]struct{} // etcd keys whose unreadable record was logged
}

var _ LeaseProvider = (*EtcdLeases)(nil)

// NewLeaseProvider makes a provider on the caller's client, which stays the caller's and is to be
// closed after the provider. It makes no request. The error wraps ErrInvalidConfig.
func NewLeaseProvider(client *clientv3.Client, cfg LeaseConfig) (*EtcdLeases, error) {
	if client == nil {
		return nil, fmt.Errorf("%w: the etcd client is nil, make one with clientv3.New", ErrInvalidConfig)
	}
	if client.ActiveConnection() == nil {
		return nil, fmt.Errorf("%w: the etcd client has no connection, make it with clientv3.New", ErrInvalidConfig)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &EtcdLeases{
		client:  client,
		keys:    keys.New(cfg.Prefix),
		timeout: cfg.RequestTimeout,
		log:     cfg.Logger,
		verbs:   newUnderWay(),
		chores:  newChores(cfg.Logger),
		warned:  make(map[string]struct{}),
	}
	p.ends = newEnds(client, p.chores)
	p.releases.owners = make(map[owned]*ownerState)
	return p, nil
}

// Close ends the provider's timers and background work and frees no lease: what is held stays held
// in etcd until its own etcd lease runs out, which is the TTL rounded up. Verbs called afterwards
// return ErrClosed. Those under way have almost two seconds to finish; then their contexts end, with
// ErrClosed as the cause. Clean-up that is due then, theirs too, is given two more seconds. Closing
// again does nothing.
func (p *EtcdLeases) Close() {
	if p.verbs.close() {
		p.ends.close()
		p.chores.close(backend.DetachedLimit)
	}
}

// LeaseHolder tells who holds a key.
type LeaseHolder struct {
	Key   string
	Owner string
	Token Token
	TTL   time.Duration // what the holder asked for last
}

// Holder tells who holds key at the moment; ok is false when nobody does. It is for the eyes of
// operators: the answer may be out of date when it arrives. Somebody unknown, whose record cannot
// be read, has an empty Owner.
func (p *EtcdLeases) Holder(ctx context.Context, key string) (holder LeaseHolder, ok bool, err error) {
	if err := keys.Check("key", key); err != nil {
		return LeaseHolder{}, false, err
	}
	ctx, cancel, err := p.begin(ctx, "holder", key)
	if err != nil {
		return LeaseHolder{}, false, err
	}
	defer cancel()
	rec, err := p.look(ctx, key)
	if err != nil {
		return LeaseHolder{}, false, Unavailable(ctx, "holder", key, err)
	}
	if rec.absent() || p.ends.past(rec.lease) {
		return LeaseHolder{}, false, nil
	}
	return LeaseHolder{Key: key, Owner: rec.owner, Token: rec.token, TTL: rec.ttl}, true, nil
}

// Guard is the compare that holds while g is in force: put it into the If of a transaction on the
// same etcd, and the transaction is applied only if g's holder still has the key.
func (p *EtcdLeases) Guard(g LeaseGrant) clientv3.Cmp { return Guard(p.keys.Lease(g.Key), g.Token) }

// begin is how every verb but Release begins: not on a closed provider, not with a context that has
// ended, and not without any limit. The verb calls what it returns at its very end.
func (p *EtcdLeases) begin(ctx context.Context, op, key string) (context.Context, context.CancelFunc, error) {
	leave, err := p.verbs.enter(op, key)
	if err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		leave()
		return nil, nil, Unavailable(ctx, op, key, err)
	}
	ctx, cancel := backend.WithTimeout(ctx, p.timeout)
	ctx, unbind := p.verbs.bound(ctx)
	return ctx, func() { unbind(); cancel(); leave() }, nil
}
