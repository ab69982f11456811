//go:build !linux

package integration_test

import "os/exec"

// dieWithParent: elsewhere the end of its stdin must do.
func dieWithParent(*exec.Cmd) {}
