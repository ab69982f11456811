package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/faults"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/judge"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/screen"
)

const demoLong = `Demo shows the coordinator at work. It needs nothing but this program.

It starts an etcd of its own (or uses the one at --endpoints or ETCDCOORD_ENDPOINTS, if given, under
a prefix of its own inside --prefix), three replicas of a bot as processes, and a small chat platform
that posts updates to them, round robin, in order per chat. A replica takes a
place in the chat's queue, answers 2xx, waits for its turn, and then reads, changes and writes the
chat's ledger, in a store that checks the fence. Meanwhile one replica is killed, one is frozen for
longer than its TTL and woken in the middle of a write, and one is stopped gracefully and replaced.

At the end a judge reads the store's log. Updates that were in the hands of a killed or frozen
replica are "skipped": the coordinator orders, it does not store. Any other update must have been
handled exactly once and in order. Exit code 1 if not.

With --coordinator none the same runs without coordination, to show that the judge has teeth.`

// demoFlags are the flags as they are given.
type demoFlags struct {
	o       demo.Options
	faults  string
	updates string
	json    bool
}

func (a *app) demo() *cobra.Command {
	f := demoFlags{o: demo.Options{Work: demo.Range{Min: 20 * time.Millisecond, Max: 80 * time.Millisecond}}}
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "Show the coordinator at work, under faults",
		Long:    demoLong,
		Args:    cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return a.checkDemo(cmd, &f) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.runDemo(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.o.Replicas, "replicas", 3, "`number` of replica processes")
	flags.IntVar(&f.o.Messages, "messages", 600, "`number` of updates in the built-in set")
	flags.IntVar(&f.o.Chats, "chats", 12, "`number` of chats in the built-in set")
	flags.StringVar(&f.updates, "updates", "", "`file` with updates, one JSON object a line, - for standard input (default: the built-in set)")
	flags.Var(&f.o.Work, "handler-time", "how long a handler works")
	flags.DurationVar(&f.o.TTL, "ttl", 5*time.Second, "TTL of a replica's session")
	flags.StringVar(&f.faults, "faults", defaultFaults(), "`faults` to make, in this order, or none")
	flags.StringVar(&f.o.Coordinator, "coordinator", "etcd", "`which`: etcd, or none to see what happens without")
	flags.BoolVar(&f.json, "json", false, "print the verdict as JSON on standard output; progress goes to standard error")
	return cmd
}

func defaultFaults() string {
	var words []string
	for _, f := range faults.Available() {
		words = append(words, string(f))
	}
	return strings.Join(words, ",")
}

func (a *app) checkDemo(cmd *cobra.Command, f *demoFlags) (err error) {
	if f.o.Faults, err = faults.Parse(f.faults); err != nil {
		return &usageError{fmt.Errorf("--faults: %w", err)}
	}
	if err := f.o.Check(); err != nil {
		return &usageError{err}
	}
	if f.updates != "" && (cmd.Flags().Changed("messages") || cmd.Flags().Changed("chats")) {
		return &usageError{errors.New("--messages and --chats shape the built-in set; they do not go with --updates")}
	}
	f.o.Etcd, f.o.Verbose = a.etcd, a.verbose
	f.o.Embedded = !cmd.Flags().Changed("endpoints") // or its environment variable
	return nil
}

func (a *app) runDemo(ctx context.Context, f *demoFlags) error {
	closeInput, err := a.openUpdates(f)
	if err != nil {
		return err
	}
	defer closeInput()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	f.o.Command = func() *exec.Cmd { return exec.Command(program, replicaCommand) }

	ctx, interrupt := context.WithCancel(ctx)
	defer interrupt()
	flush := a.choose(f, interrupt)
	verdict, err := demo.Run(ctx, f.o)
	flush()
	if verdict != nil {
		err = errors.Join(err, a.report(f, verdict))
	}
	switch {
	case err != nil && ctx.Err() == nil:
		return err
	case verdict != nil && !verdict.OK && verdict.Violations() > 0:
		return errors.Join(err, &exitError{exitFailure})
	case ctx.Err() != nil:
		if err != nil && !errors.Is(err, context.Canceled) {
			_, _ = fmt.Fprintf(a.stderr, "etcdcoord: %v\n", err)
		}
		return &exitError{exitInterrupted}
	case !verdict.OK:
		return &exitError{exitFailure}
	}
	return nil
}

func (a *app) openUpdates(f *demoFlags) (closeInput func(), err error) {
	switch f.updates {
	case "":
		return func() {}, nil
	case "-":
		f.o.Updates = a.stdin
		return func() {}, nil
	}
	file, err := os.Open(f.updates)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--updates: %w", err)}
	}
	f.o.Updates = file
	return func() { _ = file.Close() }, nil
}

// choose sets the view. On a terminal what goes to standard error would run into the picture: it
// is kept until flush.
func (a *app) choose(f *demoFlags, interrupt func()) (flush func()) {
	f.o.Stderr = a.stderr
	if f.json || !isTerminal(a.stdout) || os.Getenv("TERM") == "dumb" {
		out := a.stdout
		if f.json {
			out = a.stderr
		}
		f.o.View = func(ctx context.Context, board func() screen.Board, lines <-chan screen.Line) error {
			screen.Plain(ctx, out, board, lines)
			return nil
		}
		return func() {}
	}
	flush = func() {}
	if isTerminal(a.stderr) {
		kept := &keeper{}
		f.o.Stderr, flush = kept, func() { kept.flush(a.stderr) }
	}
	var keys io.Reader
	if isTerminal(a.stdin) && f.updates != "-" {
		keys = a.stdin
	}
	f.o.View = func(ctx context.Context, board func() screen.Board, lines <-chan screen.Line) error {
		return screen.Live(ctx, keys, a.stdout, board, lines, interrupt)
	}
	return flush
}

func (a *app) report(f *demoFlags, v *judge.Verdict) error {
	if !f.json {
		return screen.Verdict(a.stdout, v, isTerminal(a.stdout) && os.Getenv("NO_COLOR") == "")
	}
	for _, finding := range v.Findings {
		_, _ = fmt.Fprintln(a.stderr, finding)
	}
	return screen.JSON(a.stdout, v)
}

func isTerminal(stream any) bool {
	if l, ok := stream.(*locked); ok {
		stream = l.to
	}
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// keeper keeps what is written.
type keeper struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (k *keeper) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.Write(b)
}

func (k *keeper) flush(to io.Writer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, _ = k.text.WriteTo(to)
}
