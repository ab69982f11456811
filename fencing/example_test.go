package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/fencing"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// exampleClient is a client of an etcd that lives as long as the example.
func exampleClient() (client *clientv3.Client, done func()) {
	cluster, err := testetcd.Start(testetcd.Config{FastTicks: true, UnsafeNoFsync: true})
	if err != nil {
		slog.Error("no etcd", "err", err)
		os.Exit(1)
	}
	if client, err = cluster.NewClient(); err != nil {
		slog.Error("no client", "err", err)
		os.Exit(1)
	}
	return client, func() { _ = client.Close(); _ = cluster.Close() }
}

func ExampleEtcdLeases() {
	client, done := exampleClient()
	defer done()
	ctx := context.Background()
	leases, err := fencing.NewLeaseProvider(client, fencing.LeaseConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer leases.Close()

	grant, err := leases.Acquire(ctx, "nightly-report", "bot-1", 10*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("bot-1 holds:", grant.Left() > 0)

	_, err = leases.Acquire(ctx, "nightly-report", "bot-2", 10*time.Second)
	var held *fencing.HeldError
	if errors.As(err, &held) {
		fmt.Printf("held by %s for at most %v\n", held.Owner, held.TTL)
	}

	if err := leases.Release(ctx, "nightly-report", "bot-1", grant.Token); err != nil {
		fmt.Println(err) // not confirmed; it goes on in the background
	}
	next, err := leases.Acquire(ctx, "nightly-report", "bot-2", 10*time.Second)
	fmt.Println("bot-2 holds:", err == nil, "with a larger token:", next.Token > grant.Token)

	_, err = leases.Renew(ctx, "nightly-report", "bot-1", grant.Token, 10*time.Second)
	fmt.Println("bot-1 is told:", errors.Is(err, fencing.ErrLeaseLost))
	// Output:
	// bot-1 holds: true
	// held by bot-1 for at most 10s
	// bot-2 holds: true with a larger token: true
	// bot-1 is told: true
}

func ExampleWatermark() {
	var seen fencing.Watermark
	balance := 0
	write := func(by string, token fencing.Token, value int) {
		if err := seen.Admit("balance", token); err != nil {
			fmt.Println(by+":", err)
			return
		}
		balance = value
		fmt.Println(by+": balance is", balance)
	}
	write("bot-1", 41, 10)
	write("bot-2", 42, 20) // bot-1 was frozen, and lost the key
	write("bot-1", 41, 11) // awake again, it does not know it yet
	// Output:
	// bot-1: balance is 10
	// bot-2: balance is 20
	// bot-1: stale fence token: "balance": 41 is older than 42, which was seen before; drop the work
}

func ExampleEtcdLeases_Guard() {
	client, done := exampleClient()
	defer done()
	ctx := context.Background()
	leases, _ := fencing.NewLeaseProvider(client, fencing.LeaseConfig{})
	defer leases.Close()
	grant, err := leases.Acquire(ctx, "k", "bot-1", time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	write := func() bool {
		answer, err := client.Txn(ctx).
			If(leases.Guard(grant)).
			Then(clientv3.OpPut("/data/k", "written by bot-1")).
			Commit()
		return err == nil && answer.Succeeded
	}
	fmt.Println("while it holds:", write())
	_ = leases.Release(ctx, "k", "bot-1", grant.Token)
	fmt.Println("afterwards:", write())
	// Output:
	// while it holds: true
	// afterwards: false
}
