package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/connect"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 64  // EX_USAGE of sysexits.h
	exitUnreachable = 69  // EX_UNAVAILABLE
	exitInterrupted = 130 // 128 + SIGINT, as a shell reports it
)

// app is what all commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	etcd           connect.Options
	verbose        bool
	ran            bool // the command line was right: an error from here on is no usage error
}

// usageError is an error in the command line that only the command itself can see.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// locked lets several goroutines write lines to one stream.
type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// exitError ends the command with a code and without a message: everything has been said.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// run is the whole program, without the process around it.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	stderr = &locked{to: stderr}
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	code := a.exitCode(err)
	var silent *exitError
	if err != nil && !errors.As(err, &silent) {
		_, _ = fmt.Fprintf(stderr, "etcdcoord: %v\n", err)
		if code == exitUsage {
			_, _ = fmt.Fprintln(stderr, "Run etcdcoord --help, or --help after a command, for usage.")
		}
	}
	return code
}

func (a *app) exitCode(err error) int {
	var silent *exitError
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &silent):
		return silent.code
	case errors.As(err, &usage), !a.ran:
		return exitUsage
	case errors.Is(err, connect.ErrUnreachable):
		return exitUnreachable
	}
	return exitFailure
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "etcdcoord",
		Short: "Coordinates the replicas of a chat bot over etcd",
		Long: `etcdcoord coordinates the replicas of a chat bot over etcd: one replica at a time works on a
chat, in the order in which its updates came, whatever happens to the others.

Every connection flag can be set in the environment as well: --endpoints is ETCDCOORD_ENDPOINTS,
--cacert is ETCDCOORD_CACERT, and so on.`,
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := connect.FromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			if err := a.askPassword(); err != nil {
				return err
			}
			if err := a.etcd.Check(); err != nil {
				return err
			}
			a.ran = true
			return nil
		},
	}
	a.etcd.Bind(root.PersistentFlags())
	root.PersistentFlags().BoolVar(&a.verbose, "verbose", false, "log to standard error what happens inside")
	root.AddCommand(a.demo(), a.demoReplica(), a.version())
	return root
}

// askPassword asks on the terminal, as etcdctl does, when --user came without one.
func (a *app) askPassword() error {
	if !a.etcd.NeedsPassword() || !isTerminal(a.stdin) {
		return nil
	}
	_, _ = fmt.Fprintf(a.stderr, "Password of %s: ", a.etcd.User)
	password, err := term.ReadPassword(int(a.stdin.(*os.File).Fd()))
	_, _ = fmt.Fprintln(a.stderr)
	a.etcd.Password = string(password)
	return err
}
