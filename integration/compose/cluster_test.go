package compose_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// root is where docker-compose.yml is.
const root = "../.."

var members = []string{"etcd1", "etcd2", "etcd3"}

// cluster is one compose project of a test.
type cluster struct {
	t       *testing.T
	ctx     context.Context // the test's lifetime, cut short by Ctrl-C
	project string
	ports   map[string]string // of 127.0.0.1, by member
}

// buildImage makes the image that the compose file names, once for all tests.
var buildImage = sync.OnceValue(func() error {
	if os.Getenv("ETCD_IMAGE") != "" {
		return nil
	}
	out, err := exec.CommandContext(docker.interrupted, "bash", filepath.Join(root, "docker", "build-image.sh")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("docker/build-image.sh: %w\n%s", err, out)
	}
	return nil
})

// up starts a cluster of the test's own and returns when all members are healthy.
func up(t *testing.T) *cluster {
	t.Helper()
	require.NoError(t, buildImage())
	// Not t.Context(): that one ends before the clean-up.
	c := &cluster{t: t, ctx: docker.interrupted, project: fmt.Sprintf("etcdcoord-test-%d-%d", os.Getpid(), time.Now().UnixNano())}
	t.Cleanup(c.down)
	for attempt := 1; ; attempt++ {
		// The ports are free now; between now and then somebody may take one, which is worth another attempt.
		c.ports = freePorts(t)
		out, err := c.compose(c.ctx, "up", "-d")
		if err == nil {
			break
		}
		taken := strings.Contains(out, "address already in use") || strings.Contains(out, "port is already allocated")
		if !taken || attempt == 5 {
			require.NoError(t, err, out)
		}
		_, err = c.compose(c.ctx, "down", "-v")
		require.NoError(t, err)
	}
	for _, member := range members {
		c.waitFor(member, "healthy")
	}
	return c
}

// down removes all there is of the project, and fails the test if something is left.
func (c *cluster) down() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if c.t.Failed() {
		out, _ := c.compose(ctx, "logs", "--no-color", "--tail=8")
		c.t.Logf("the members' last words:\n%s", out)
	}
	out, err := c.compose(ctx, "down", "-v", "-t", "2")
	if err != nil {
		c.t.Errorf("%v\n%s", err, out)
	}
	for _, list := range [][]string{{"ps", "-aq"}, {"volume", "ls", "-q"}, {"network", "ls", "-q"}} {
		left, err := c.docker(ctx, append(list, "--filter", "label=com.docker.compose.project="+c.project)...)
		if err != nil || left != "" {
			c.t.Errorf("docker %s: left behind: %q (%v)", list[0], left, err)
		}
	}
	if marker := os.Getenv("ETCDCOORD_COMPOSE_MARKER"); marker != "" && !c.t.Failed() {
		f, err := os.OpenFile(marker, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintln(f, "PASS:", c.t.Name())
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			c.t.Errorf("the marker: %v", err)
		}
	}
}

// must runs a compose command that has to succeed.
func (c *cluster) must(args ...string) {
	c.t.Helper()
	out, err := c.compose(c.ctx, args...)
	require.NoError(c.t, err, out)
}

func (c *cluster) compose(ctx context.Context, args ...string) (string, error) {
	line := append([]string{}, docker.compose...)
	line = append(line, "-f", filepath.Join(root, "docker-compose.yml"), "-p", c.project)
	cmd := exec.CommandContext(ctx, line[0], append(line[1:], args...)...)
	cmd.Env = os.Environ()
	for member, port := range c.ports {
		cmd.Env = append(cmd.Env, strings.ToUpper(member)+"_PORT="+port)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("compose %s: %w", strings.Join(args, " "), err)
	}
	return string(out), err
}

func (c *cluster) docker(ctx context.Context, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}

// inspect asks the engine about a member's container, dead ones included.
func (c *cluster) inspect(member, format string) (string, error) {
	id, err := c.docker(c.ctx, "ps", "-aq",
		"--filter", "label=com.docker.compose.project="+c.project, "--filter", "label=com.docker.compose.service="+member)
	if err != nil {
		return "", err
	}
	return c.docker(c.ctx, "inspect", "--format", format, id)
}

// waitFor waits until the engine calls the member "healthy", "exited", …
func (c *cluster) waitFor(member, status string) {
	c.t.Helper()
	var last string
	var err error
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); {
		last, err = c.inspect(member, `{{if .State.Running}}{{.State.Health.Status}}{{else}}{{.State.Status}}{{end}}`)
		if last == status && err == nil {
			return
		}
		select {
		case <-c.ctx.Done():
			require.FailNow(c.t, "interrupted")
		case <-time.After(300 * time.Millisecond):
		}
	}
	require.FailNowf(c.t, "not "+status, "%s is %q (%v)", member, last, err)
}

func (c *cluster) endpoint(member string) string { return "127.0.0.1:" + c.ports[member] }

func (c *cluster) endpoints() []string {
	var all []string
	for _, member := range members {
		all = append(all, c.endpoint(member))
	}
	return all
}

// client is closed with the test, before the cluster goes.
func (c *cluster) client(endpoints ...string) *clientv3.Client {
	c.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 2 * time.Second, Logger: zap.NewNop()})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// leader is the name of the member that leads now.
func (c *cluster) leader() string {
	c.t.Helper()
	client := c.client(c.endpoints()...)
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	for _, member := range members {
		status, err := client.Status(ctx, c.endpoint(member))
		require.NoError(c.t, err)
		if status.Leader == status.Header.MemberId {
			return member
		}
	}
	require.FailNow(c.t, "nobody leads")
	return ""
}

// freePorts are three different ones, held all at once while they are chosen.
func freePorts(t *testing.T) map[string]string {
	t.Helper()
	ports := map[string]string{}
	for _, member := range members {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		_, ports[member], err = net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
	}
	return ports
}
