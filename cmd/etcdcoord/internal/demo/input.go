package demo

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/platform"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/telegram"
)

// input reads ahead of the platform, so that the plan knows how much there is, and passes on
// what comes from a pipe as it comes.
type input struct {
	ctx    context.Context
	source platform.Source
	known  func(n int, all bool)

	mu    sync.Mutex // guards the rest
	ready []telegram.Update
	read  int
	err   error         // io.EOF after the last
	more  chan struct{} // closed and replaced when there is more
}

// newInput starts to read. A read that blocks is left alone when ctx ends: it ends with the process.
func newInput(ctx context.Context, source platform.Source, known func(n int, all bool)) *input {
	in := &input{ctx: ctx, source: source, known: known, more: make(chan struct{})}
	go in.readAll()
	return in
}

func (in *input) readAll() {
	for in.ctx.Err() == nil {
		u, err := in.source.Next()
		in.mu.Lock()
		if err == nil {
			in.ready = append(in.ready, u)
			in.read++
		}
		in.err = err
		n := in.read
		close(in.more)
		in.more = make(chan struct{})
		in.mu.Unlock()
		in.known(n, err != nil)
		if err != nil {
			return
		}
	}
}

// total is how many updates there are, 0 as long as that is not known.
func (in *input) total() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err == nil {
		return 0
	}
	return in.read
}

// Next implements platform.Source.
func (in *input) Next() (telegram.Update, error) {
	for {
		in.mu.Lock()
		if len(in.ready) > 0 {
			u := in.ready[0]
			in.ready = in.ready[1:]
			in.mu.Unlock()
			return u, nil
		}
		err, more := in.err, in.more
		in.mu.Unlock()
		if err != nil {
			return telegram.Update{}, err
		}
		select {
		case <-more:
		case <-in.ctx.Done():
			return telegram.Update{}, errors.Join(io.EOF, context.Cause(in.ctx))
		}
	}
}
