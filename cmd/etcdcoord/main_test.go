package main

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the replica: demo starts this very program again, and under test that is the test binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == replicaCommand {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}
