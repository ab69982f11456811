package main

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	ctx, quit := signal.NotifyContext(context.Background(), os.Interrupt)
	defer quit()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}})
	check(err)
	defer client.Close()
	c, err := etcdcoord.New(client, etcdcoord.Config{Prefix: "/my-bot/"})
	check(err)
	defer c.Stop(context.Background()) // hands over at once; without it others wait for the session's end
	check(c.Start(ctx))

	ticket, err := c.Reserve(ctx, "chat 42") // fixes the place in line: now acknowledge the message
	check(err)
	turn, err := c.AcquireTurn(ctx, ticket) // waits, also for other replicas
	check(err)
	defer turn.Release(ctx)
	work, cancel := turn.Bind(ctx) // ends with ctx or when the turn is lost
	defer cancel()
	log.Printf("my turn, fence %d", turn.Fence()) // send the fence along with every write
	<-work.Done()                                 // handle the message here; ^C ends this one
}

func check(err error) {
	if err != nil {
		log.Panic(err) // not Fatal, which skips what is deferred
	}
}
