package integration_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/faults.md is how a code in a comment is looked up, so it names tests that exist, and every code.
func TestFaultsPageNamesTestsThatExistAndEveryCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/faults.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var tests string
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		tests += string(text)
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(named), 25)
	for _, name := range named {
		require.Contains(t, tests, "func "+name[1]+"(", "named in docs/faults.md")
	}
	codes := regexp.MustCompile(`// ([FB][0-9]{1,2})\b`).FindAllStringSubmatch(tests, -1)
	require.Greater(t, len(codes), 25)
	for _, code := range codes {
		require.Regexp(t, `(?m)^\| `+code[1]+` \|`, string(page), "used in a comment")
	}
}
