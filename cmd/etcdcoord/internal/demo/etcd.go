package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/connect"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// backing is the etcd of a run. With no coordinator there is none.
type backing struct {
	options connect.Options // for the replicas: the prefix is this run's own
	ttl     time.Duration   // of a session, as this etcd grants it
	cluster *testetcd.Cluster
	client  *clientv3.Client
	own     string // the prefix that was made for this run, and goes with it; "" before
}

func openBacking(ctx context.Context, o Options) (_ *backing, err error) {
	b := &backing{options: o.Etcd, ttl: o.TTL}
	if o.Coordinator == "none" {
		return b, nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if o.Embedded {
		if b.cluster, err = testetcd.Start(testetcd.Config{}); err != nil {
			return b, fmt.Errorf("embedded etcd: %w", err)
		}
		b.options.Endpoints = b.cluster.Endpoints()
	}
	if b.client, err = b.options.Client(); err != nil {
		return b, err
	}
	if err := b.options.Ping(ctx, b.client); err != nil {
		return b, err
	}
	if b.ttl, err = b.grantedTTL(ctx, o.TTL); err != nil {
		return b, err
	}
	// That etcd is there is known now. A replica can wait: with passwords, several that start at a
	// time keep a small machine busy for seconds.
	b.options.DialTimeout = max(b.options.DialTimeout, 15*time.Second)
	// Two demos on one etcd, or a demo beside real bots, must not meet.
	b.own = strings.TrimSuffix(b.options.Prefix, "/") + "/demo/" + randomHex() + "/"
	b.options.Prefix = b.own
	return b, nil
}

// grantedTTL is what etcd makes of ttl: it has a minimum, and knows whole seconds only.
func (b *backing) grantedTTL(ctx context.Context, ttl time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, b.options.CommandTimeout)
	defer cancel()
	lease, err := b.client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	if err != nil {
		return 0, &connect.UnreachableError{Endpoints: b.options.Endpoints, Err: err}
	}
	_, err = b.client.Revoke(ctx, lease.ID)
	return time.Duration(lease.TTL) * time.Second, err
}

// close leaves nothing behind: on the user's etcd no keys, of ours no directory.
func (b *backing) close() error {
	var errs []error
	if b.client != nil {
		if b.cluster == nil && b.own != "" {
			ctx, cancel := context.WithTimeout(context.Background(), b.options.CommandTimeout)
			_, err := b.client.Delete(ctx, b.own, clientv3.WithPrefix())
			cancel()
			if err != nil {
				errs = append(errs, fmt.Errorf("keys under %s were not removed: %w", b.own, err))
			}
		}
		errs = append(errs, b.client.Close())
	}
	if b.cluster != nil {
		errs = append(errs, b.cluster.Close())
	}
	return errors.Join(errs...)
}

func randomHex() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
