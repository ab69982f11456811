package testetcd_test

import (
	"context"
	"fmt"
	"log"

	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

func Example() {
	cluster, err := testetcd.Start(testetcd.Config{FastTicks: true, UnsafeNoFsync: true})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	client, err := cluster.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lease, err := client.Grant(context.Background(), 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(cluster.Endpoints()), "member, shortest lease:", lease.TTL, "s")
	// Output: 1 member, shortest lease: 1 s
}
