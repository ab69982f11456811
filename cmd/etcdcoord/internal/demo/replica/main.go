package replica

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/ledger"
)

// finishWithin bounds a graceful stop, beyond the TTL of a dead replica that a turn may have to wait for.
const finishWithin = 60 * time.Second

// Main runs a replica until it is told to stop. stdin brings the Config and then stays open.
func Main(stdin io.Reader, stdout, stderr io.Writer) error {
	// Ctrl-C goes to every process of the terminal; the parent decides what happens then.
	signal.Ignore(os.Interrupt)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	in := bufio.NewReader(stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("this command is started by \"etcdcoord demo\" and reads its configuration from it: %w", err)
	}
	var cfg Config
	if err := json.Unmarshal(line, &cfg); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(3) // the parent is gone; nobody is left to whom anything could be said
	}()

	level := slog.LevelError
	if cfg.Verbose {
		level = slog.LevelDebug
	}
	b := &bot{
		cfg: cfg, store: ledger.NewClient(cfg.StoreURL, cfg.Secret), talk: &talk{out: stdout},
		log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})).With("replica", cfg.Incarnation),
	}
	if err := b.run(ctx); err != nil {
		b.talk.say(Message{Fatal: err.Error()})
		return err
	}
	return nil
}

func (b *bot) run(ctx context.Context) (err error) {
	closeClient, err := b.coordinate()
	if err != nil {
		return err
	}
	defer closeClient()
	if err := b.coord.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it had begun
		}
		return fmt.Errorf("start: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, b.coord.Stop(ctx))
	}
	server := b.server()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	campaign, endCampaign := context.WithCancel(context.Background())
	defer endCampaign()
	var cron sync.WaitGroup
	cron.Go(func() { b.cron(campaign) })
	b.talk.say(Message{Ready: "http://" + listener.Addr().String() + "/webhook"})

	select {
	case <-ctx.Done():
	case err = <-served:
	}
	// The order matters: no new posts, then no more leading, then what was acknowledged, then the session.
	finish, cancel := context.WithTimeout(context.Background(), b.cfg.TTL+finishWithin)
	defer cancel()
	if shut := server.Shutdown(finish); shut != nil && !errors.Is(shut, http.ErrServerClosed) {
		err = errors.Join(err, shut)
	}
	endCampaign()
	err = errors.Join(err, b.finishWork(finish))
	err = errors.Join(err, b.coord.Stop(finish))
	cron.Wait()
	b.store.Close()
	return err
}

// finishWork waits for the acknowledged updates.
func (b *bot) finishWork(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		b.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("acknowledged updates are not finished: %w", context.Cause(ctx))
	}
}

// coordinate makes the coordinator that was asked for.
func (b *bot) coordinate() (closeClient func(), err error) {
	if b.cfg.Coordinator == "none" {
		b.coord = none{}
		return func() {}, nil
	}
	client, err := b.cfg.Etcd.Client()
	if err != nil {
		return nil, err
	}
	b.coord, err = newEtcd(client, b.cfg, b.log, func(event string) { b.talk.say(Message{Event: event}) })
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return func() {
		if err := client.Close(); err != nil {
			b.log.Warn("client", "err", err)
		}
	}, nil
}
