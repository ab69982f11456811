// Command etcdcoord is the coordinator's command line: it shows the product at work.
//
// Exit codes: 0 ok; 1 the command's own "no" (for demo: a broken promise); 64 wrong usage; 69 etcd
// did not answer; 130 interrupted.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// The first signal asks; with the handler gone the second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
