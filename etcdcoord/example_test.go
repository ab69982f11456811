package etcdcoord_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// Two replicas of a bot: each takes a place for a message, and is let through in that order.
func Example() {
	etcd, err := testetcd.Start(testetcd.Config{FastTicks: true, UnsafeNoFsync: true})
	check(err)
	defer etcd.Close()
	ctx := context.Background()
	a, b := startReplica(etcd, "a"), startReplica(etcd, "b")
	defer a.stop()
	defer b.stop()

	first, err := a.Reserve(ctx, "chat 42")
	check(err)
	second, err := b.Reserve(ctx, "chat 42")
	check(err)

	turn, err := a.AcquireTurn(ctx, first)
	check(err)
	_, known := turn.PreviousHolder()
	fmt.Println("a has its turn, the first of all:", !known)
	fence := turn.Fence()
	check(turn.Release(ctx))

	turn, err = b.AcquireTurn(ctx, second)
	check(err)
	before, _ := turn.PreviousHolder()
	fmt.Printf("b has its turn after %s, with a larger fence: %v\n", before, turn.Fence() > fence)
	check(turn.Release(ctx))
	fmt.Println("released:", errors.Is(turn.AssertHeld(), etcdcoord.ErrReleased))
	// Output:
	// a has its turn, the first of all: true
	// b has its turn after a, with a larger fence: true
	// released: true
}

// Whoever holds something is told when it is lost, and so is everybody who listens.
func ExampleOn() {
	etcd, err := testetcd.Start(testetcd.Config{FastTicks: true, UnsafeNoFsync: true})
	check(err)
	defer etcd.Close()
	ctx := context.Background()
	c := startReplica(etcd, "a")
	unsubscribe := etcdcoord.On(c.Coordinator, func(e etcdcoord.TurnLost) {
		fmt.Printf("%s is no longer ours: %v\n", e.Key, errors.Is(e.Err, etcdcoord.ErrLeaseLost))
	})
	defer unsubscribe()

	ticket, err := c.Reserve(ctx, "chat 42")
	check(err)
	turn, err := c.AcquireTurn(ctx, ticket)
	check(err)
	c.stop() // ends what is held, and waits for the listeners
	var lost *etcdcoord.LeaseLostError
	if errors.As(context.Cause(turn.Context()), &lost) {
		fmt.Println("because it was", lost.Reason)
	}
	// Output:
	// chat 42 is no longer ours: true
	// because it was stopped
}

// One of the replicas polls. Not to be elected is no failure.
func ExampleCoordinator_TryLead() {
	etcd, err := testetcd.Start(testetcd.Config{FastTicks: true, UnsafeNoFsync: true})
	check(err)
	defer etcd.Close()
	ctx := context.Background()
	a, b := startReplica(etcd, "a"), startReplica(etcd, "b")
	defer a.stop()
	defer b.stop()

	leadership, err := a.TryLead(ctx, "poller")
	check(err)
	fmt.Println("a polls")
	_, err = b.TryLead(ctx, "poller")
	fmt.Println("b does not:", errors.Is(err, etcdcoord.ErrNotElected))

	fence := leadership.Fence()
	check(leadership.Resign(ctx))
	leadership, err = b.TryLead(ctx, "poller")
	check(err)
	fmt.Println("now b polls, with a larger fence:", leadership.Fence() > fence)
	// Output:
	// a polls
	// b does not: true
	// now b polls, with a larger fence: true
}

// replica is a coordinator and what has to be closed after it.
type exampleReplica struct {
	*etcdcoord.Coordinator
	stop func()
}

func startReplica(etcd *testetcd.Cluster, id string) exampleReplica {
	client, err := etcd.NewClient()
	check(err)
	c, err := etcdcoord.New(client, etcdcoord.Config{ReplicaID: id})
	check(err)
	check(c.Start(context.Background()))
	return exampleReplica{c, func() {
		check(c.Stop(context.Background()))
		_ = client.Close()
	}}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
