package main

import (
	"github.com/spf13/cobra"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/replica"
)

// replicaCommand is how demo starts this program as one of its replicas.
const replicaCommand = "demo-replica"

func (a *app) demoReplica() *cobra.Command {
	return &cobra.Command{
		Use:    replicaCommand,
		Short:  "One replica of the demo; started by demo",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return replica.Main(a.stdin, a.stdout, a.stderr) },
	}
}
