package compose_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// docker is what TestMain found on this machine.
var docker struct {
	compose     []string        // the compose tool as a command line: v2's or the older one's
	interrupted context.Context // ends with Ctrl-C, so that the tests fail and clean up instead of dying
}

func TestMain(m *testing.M) {
	if reason := findDocker(); reason != "" {
		fmt.Fprintf(os.Stderr, "SKIPPED: %s; the tests of docker-compose.yml did not run\n", reason)
		if os.Getenv("ETCDCOORD_REQUIRE_DOCKER") == "1" {
			fmt.Fprintln(os.Stderr, "ETCDCOORD_REQUIRE_DOCKER=1: that is a failure")
			os.Exit(1)
		}
		// "go test ./..." hides the output of a package that did not fail. This sentence, which the testing
		// package itself uses, is the one thing that it looks for and repeats in its summary.
		fmt.Fprintln(os.Stderr, "testing: warning: no tests to run")
		os.Exit(0)
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	docker.interrupted = interrupted
	goleak.VerifyTestMain(stopping{m, stop})
}

// stopping ends the listening for signals before leaks are looked for.
type stopping struct {
	m    *testing.M
	stop func()
}

func (s stopping) Run() int {
	defer s.stop()
	return s.m.Run()
}

// findDocker fills in docker, or tells what is missing.
func findDocker() (missing string) {
	if err := try("docker", "version", "--format", "{{.Server.Version}}"); err != nil {
		return fmt.Sprintf("no Docker engine (%v)", err)
	}
	if os.Getenv("ETCD_IMAGE") == "" {
		if err := try("bash", "-c", "true"); err != nil {
			return fmt.Sprintf("no bash to build the image with, and no ETCD_IMAGE (%v)", err)
		}
	}
	for _, tool := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if try(tool[0], append(tool[1:], "version")...) == nil {
			docker.compose = tool
			return ""
		}
	}
	return "neither \"docker compose\" nor \"docker-compose\""
}

func try(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%w: %s", err, line)
	}
	return nil
}
