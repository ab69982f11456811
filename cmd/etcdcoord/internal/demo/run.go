package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/faults"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/fleet"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/judge"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/ledger"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/platform"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/replica"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/telegram"
	"github.com/andresayac/botmesh-etcd/fencing"
)

const (
	// maxOpenPerReplica bounds what one fault can cost.
	maxOpenPerReplica = 10
	// lastPart is how long updates go on after the last fault.
	lastPart = 4 * time.Second
	// stopWithin bounds the end of the replicas, beyond the TTL that a turn may have to wait for.
	stopWithin = 15 * time.Second
)

// run is one demo.
type run struct {
	o        Options
	backing  *backing
	journal  *journal.Journal
	open     *journal.Open
	store    *ledger.Store
	server   *http.Server
	fleet    *fleet.Fleet
	plan     *platform.Plan
	platform *platform.Platform
	director *faults.Director
	narrator *narrator
	in       atomic.Pointer[input] // set when the posts begin
}

// Run runs the demo and judges it. When ctx ends it stops early, cleans up, and judges what there
// was. An error may come with a verdict: then the run ended before its time.
func Run(ctx context.Context, o Options) (_ *judge.Verdict, err error) {
	b, err := openBacking(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	r := &run{o: o, backing: b, journal: journal.New()}
	if err := r.build(); err != nil {
		return nil, err
	}
	view, endView := context.WithCancel(context.Background())
	shown := make(chan error, 1)
	go func() { shown <- o.View(view, r.board, r.narrator.lines) }()

	began, err := r.play(ctx)
	// The replicas finish what they acknowledged, so the store must go last. What comes after this
	// is not in the journal, and nothing can come.
	err = errors.Join(err, r.fleet.Close(b.ttl+stopWithin), r.fleet.Err(), r.server.Close())
	endView()
	err = errors.Join(err, <-shown)
	if !began {
		return nil, err
	}
	return judge.Judge(r.journal.Entries(), judge.Case{
		TTL: b.ttl, Interrupted: ctx.Err() != nil || err != nil, Ledgers: r.store.Ledgers(),
	}), err
}

// build puts the parts together. Nothing runs yet but the store.
func (r *run) build() error {
	secret := randomHex()
	r.open, r.narrator = journal.NewOpen(r.journal), newNarrator(r.journal)
	var watermark ledger.Fences
	if r.o.Coordinator != "none" {
		watermark = &fencing.Watermark{}
	}
	r.store = ledger.NewStore(r.journal, watermark, secret)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r.fleet = fleet.New(r.journal, r.o.Command, replica.Config{
		Coordinator: r.o.Coordinator, Etcd: r.backing.options, TTL: r.backing.ttl,
		WorkMin: r.o.Work.Min, WorkMax: r.o.Work.Max,
		StoreURL: "http://" + listener.Addr().String(), Secret: secret, Verbose: r.o.Verbose,
	}, r.o.Stderr)
	r.director = faults.New(r.fleet, r.journal, r.open, r.backing.ttl)
	r.store.BeforeWrite = r.director.BeforeWrite

	r.plan = platform.NewPlan(r.open, maxOpenPerReplica*r.o.Replicas, r.parts()...)
	r.platform = platform.New(r.journal, r.fleet.Targets, secret, r.plan)
	r.server = &http.Server{Handler: r.store.Handler(), ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(listener) }() // ends with Close
	return nil
}

// parts are the lengths of the run's parts: one for each fault and one after the last.
func (r *run) parts() []time.Duration {
	if len(r.o.Faults) == 0 {
		return nil
	}
	var parts []time.Duration
	for _, f := range r.o.Faults {
		parts = append(parts, f.Takes(r.backing.ttl))
	}
	return append(parts, lastPart)
}

func (r *run) source() platform.Source {
	if r.o.Updates == nil {
		return telegram.NewGenerator(r.o.Messages, r.o.Chats, 1)
	}
	return telegram.NewReader(r.o.Updates, func(e *telegram.LineError) { _, _ = fmt.Fprintln(r.o.Stderr, e) })
}
