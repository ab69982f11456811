package main

import (
	"bytes"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// result is what a command did.
type result struct {
	code           int
	stdout, stderr string
}

func command(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(stdin), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

func TestWrongUsageIs64AndSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		says string
	}{
		{"nope", `unknown command "nope"`},
		{"demo extra", "extra"},
		{"demo --bogus", "--bogus"},
		{"demo --replicas 0", "--replicas 0"},
		{"demo --replicas x", "--replicas"},
		{"demo --messages 0", "--messages 0"},
		{"demo --chats 0", "--chats 0"},
		{"demo --ttl 10ms", "--ttl 10ms"},
		{"demo --handler-time 5", "20ms-80ms"},
		{"demo --handler-time 80ms-20ms", "end before it begins"},
		{"demo --faults kill,flood", `"flood"`},
		{"demo --coordinator zookeeper", `"zookeeper"`},
		{"demo --updates /does/not/exist", "/does/not/exist"},
		{"demo --updates - --messages 5", "--updates"},
		{"demo --endpoints ,", "endpoint"},
		{"demo --cert x", "--key"},
		{"demo --user ann", "needs a password"},
		{"demo --password x", "--user"},
		{"demo --prefix=", "--prefix"},
		{"version extra", "extra"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			r := command(t, "", strings.Fields(c.args)...)
			require.Equal(t, exitUsage, r.code, r.stderr)
			require.Contains(t, r.stderr, c.says)
			require.Empty(t, r.stdout)
		})
	}
}

func TestADeadEndpointIs69WithinFiveSecondsAndIsNamed(t *testing.T) {
	t.Parallel()
	// A port that nobody listens on, and one that takes connections and never answers.
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	for _, endpoint := range []string{closed.Addr().String(), silent.Addr().String()} {
		for _, user := range []string{"", "--user=ann:secret"} {
			t.Run(endpoint+user, func(t *testing.T) {
				t.Parallel()
				args := []string{"demo", "--endpoints", endpoint}
				if user != "" {
					args = append(args, user)
				}
				began := time.Now()
				r := command(t, "", args...)
				require.Less(t, time.Since(began), 5*time.Second)
				require.Equal(t, exitUnreachable, r.code, r.stderr)
				require.Contains(t, r.stderr, endpoint)
			})
		}
	}
}

func TestTheEnvironmentNamesTheEndpoint(t *testing.T) {
	t.Setenv("ETCDCOORD_ENDPOINTS", "127.0.0.1:1")
	t.Setenv("ETCDCOORD_COMMAND_TIMEOUT", "200ms")
	r := command(t, "", "demo")
	require.Equal(t, exitUnreachable, r.code)
	require.Contains(t, r.stderr, "127.0.0.1:1:")
	t.Setenv("ETCDCOORD_COMMAND_TIMEOUT", "soon")
	r = command(t, "", "demo")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "ETCDCOORD_COMMAND_TIMEOUT")
}

func TestVersionNamesTheClient(t *testing.T) {
	t.Parallel()
	r := command(t, "", "version", "--json")
	require.Zero(t, r.code, r.stderr)
	var v versionInfo
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &v))
	require.NotEmpty(t, v.Version)
	require.NotEmpty(t, v.Go)
	require.Contains(t, command(t, "", "version").stdout, "etcdcoord "+v.Version)
}

func TestTheReplicaCommandAloneSaysWhoStartsIt(t *testing.T) {
	t.Parallel()
	r := command(t, "", replicaCommand)
	require.Equal(t, exitFailure, r.code)
	require.Contains(t, r.stderr, "etcdcoord demo")
	require.NotContains(t, command(t, "", "--help").stdout, replicaCommand)
}
