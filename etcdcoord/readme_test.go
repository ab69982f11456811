package etcdcoord_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// blocks are the fenced code blocks of one language.
func blocks(t *testing.T, markdown, language string) (found []string) {
	t.Helper()
	for _, part := range strings.Split(markdown, "\n```"+language+"\n")[1:] {
		code, _, closed := strings.Cut(part, "\n```\n")
		require.True(t, closed)
		found = append(found, code+"\n")
	}
	return found
}

// The program in the README is one that is compiled.
func TestTheQuickstartOfTheReadmeIsTheOneThatCompiles(t *testing.T) {
	t.Parallel()
	var programs []string
	for _, code := range blocks(t, read(t, "../README.md"), "go") {
		if strings.HasPrefix(code, "package main\n") {
			programs = append(programs, code)
		}
	}
	require.Len(t, programs, 1)
	require.Equal(t, read(t, "../examples/quickstart/main.go"), programs[0])
}

func TestTheReadmeHasTheTwoCommandsThatShowIt(t *testing.T) {
	t.Parallel()
	commands := blocks(t, read(t, "../README.md"), "sh")
	require.Contains(t, commands, "go run ./cmd/etcdcoord demo\n")
	require.Contains(t, commands, "go test -race -timeout 10m ./...\n")
}
