package faultproxy

import "testing"

// Before starts a proxy before target (host:port) that closes when tb ends. Make the clients that
// use it after it, so that they are closed before it.
func Before(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := New(target)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}
