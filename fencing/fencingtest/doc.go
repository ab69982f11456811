// Package fencingtest checks any fencing.LeaseProvider against the numbered laws of that interface,
// and offers a small one in memory for unit tests.
//
// A provider of one's own is checked by
//
//	func TestLaws(t *testing.T) {
//		fencingtest.Run(t, func(t fencingtest.T) fencingtest.Harness {
//			return fencingtest.Harness{Provider: newProvider(t)}
//		})
//	}
//
// with one sub-test per law. [Check] runs a single law and returns what it complains about instead
// of failing a test; so the suite itself is tested, with providers that break one law each.
//
// [Model] obeys all laws, in memory. On a [Clock] that the test moves by hand, a lease expires
// without anybody waiting.
//
// # What the laws cannot see
//
// They call the provider and look at answers, so they cannot lose an answer, kill a process, or
// suspend the machine. What a provider does then needs tests of its own.
package fencingtest
