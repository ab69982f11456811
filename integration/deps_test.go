package integration_test

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/andresayac/botmesh-etcd"

// layers of the module. A package imports only from layers below its own.
var layers = map[string]int{
	"internal/keys": 0, "internal/backend": 0, "internal/clock": 0, "internal/janitor": 0, "internal/relay": 0, "internal/watch": 0,
	"fencing":          1,
	"internal/session": 2, "internal/hold": 2,
	"internal/peers": 3, "tickets": 3, "election": 3,
	"etcdcoord": 4,
}

// notShipped are the trees that no bot links: the command, what only tests import, and what stands
// alone as an example.
var notShipped = []string{"cmd/", "integration", "examples/", "fencing/fencingtest"}

// list is what `go list` says about these packages, in lines.
func list(t *testing.T, packages []string, flags ...string) []string {
	t.Helper()
	cmd := exec.Command("go", slices.Concat([]string{"list", "-buildvcs=false"}, flags, packages)...)
	cmd.Dir = ".."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// inModule is the name of a package inside the module; "" for one of another.
func inModule(path string) string {
	name, _ := strings.CutPrefix(path, module+"/")
	if name == path {
		return ""
	}
	return name
}

// shipped are the packages that a bot links.
func shipped(t *testing.T) (packages []string) {
	t.Helper()
	for _, path := range list(t, []string{"./..."}) {
		inTree := func(tree string) bool { return strings.HasPrefix(inModule(path), tree) }
		if !slices.ContainsFunc(notShipped, inTree) {
			packages = append(packages, path)
		}
	}
	return packages
}

func TestArrowsBetweenPackagesOnlyPointDown(t *testing.T) {
	t.Parallel()
	packages := shipped(t)
	var names []string
	for _, path := range packages {
		names = append(names, inModule(path))
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(layers)), names, "every package has its layer, and every layer its packages")
	arrows := 0
	for _, arrow := range list(t, packages, "-f", `{{range .Imports}}{{$.ImportPath}} {{.}}{{"\n"}}{{end}}`) {
		from, to, _ := strings.Cut(arrow, " ")
		if inModule(to) == "" {
			continue
		}
		arrows++
		layer, known := layers[inModule(to)]
		require.True(t, known, "%s imports what is not shipped: %s", from, to)
		require.Less(t, layer, layers[inModule(from)], "%s imports %s", from, to)
	}
	require.Greater(t, arrows, len(packages))
}

func TestShippedPackagesNeedNothingButTheEtcdClient(t *testing.T) {
	t.Parallel()
	allowed := make(map[string]bool)
	for _, path := range list(t, []string{"std"}) {
		allowed[path] = true
	}
	for _, path := range list(t, []string{"go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/client/v3/concurrency"}, "-deps") {
		allowed[path] = true
	}
	linked := list(t, shipped(t), "-deps")
	require.Contains(t, linked, "go.etcd.io/etcd/client/v3")
	for _, path := range linked {
		_, ours := layers[inModule(path)]
		require.True(t, allowed[path] || ours, "%s is neither the client's nor shipped; see go mod why", path)
		require.NotContains(t, path, "go.etcd.io/etcd/server")
		require.NotContains(t, path, "testify")
		require.NotEqual(t, "testing", path, "the test framework is linked into the bot")
	}
}

func TestTicketsAndElectionKnowNothingOfEachOther(t *testing.T) {
	t.Parallel()
	for from, other := range map[string]string{"tickets": "election", "election": "tickets"} {
		for _, path := range list(t, []string{"./" + from}, "-deps", "-test") { // their tests, too
			require.False(t, strings.HasPrefix(inModule(path), other), "%s needs %s", from, path)
		}
	}
}
