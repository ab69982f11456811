// Package watch follows a prefix in etcd for as long as it is wanted, whatever happens to the
// watch underneath.
//
// It opens watches "from now", never from a past revision: etcd serves those on a tick of 100 ms.
// What happened before the watch was open, or while it was broken, is for the follower to read:
// Opened is called after every opening, and a read made in it sees all that the watch missed.
package watch

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// Follower is told about a prefix, from one goroutine.
type Follower struct {
	// Opened is called when a watch has been opened. An error closes the watch; it is opened again later.
	Opened func(ctx context.Context) error
	// Event is called for every change, in order.
	Event func(*clientv3.Event)
	// Broken is told why a watch ended, for the log.
	Broken func(error)
}

const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
)

// Follow follows prefix until ctx ends. limit bounds the opening of one watch.
func Follow(ctx context.Context, client *clientv3.Client, prefix string, limit time.Duration, f Follower) {
	pause := firstPause
	for ctx.Err() == nil {
		opened, err := follow(ctx, client, prefix, limit, f)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.Broken(err)
		}
		if opened {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longPause)
	}
}

// follow lives as long as one watch.
func follow(ctx context.Context, client *clientv3.Client, prefix string, limit time.Duration, f Follower) (opened bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Watch blocks until the server has answered, and only its context can bound that.
	tooSlow := time.AfterFunc(limit, func() { cancel(context.DeadlineExceeded) })
	defer tooSlow.Stop()
	changes := client.Watch(FreshStream(clientv3.WithRequireLeader(ctx)), prefix, clientv3.WithPrefix(), clientv3.WithPrevKV())
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err := f.Opened(ctx); err != nil {
		return false, err
	}
	if !tooSlow.Stop() {
		return false, context.Cause(ctx)
	}
	for answer := range changes {
		if err := answer.Err(); err != nil {
			return true, err
		}
		for _, event := range answer.Events {
			f.Event(event)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return true, cause
	}
	return true, errClosed
}

// errClosed: etcd ends a watch without a word when the member shuts down or loses its leader.
var errClosed = errors.New("the server closed the watch")

var streams atomic.Int64

// FreshStream makes the client open a stream of its own for a watch under ctx, because it keeps one
// stream per distinct metadata. An old stream keeps the auth token that it was opened with, and
// etcd checks new watches on it against that token, however long ago it ran out.
func FreshStream(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "etcdcoord-stream", strconv.FormatInt(streams.Add(1), 10))
}
