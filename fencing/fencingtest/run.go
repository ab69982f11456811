package fencingtest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/andresayac/botmesh-etcd/fencing"
)

// T is the part of *testing.T that laws use.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	FailNow()
	Cleanup(func())
}

// Harness is a provider and the time it lives in.
type Harness struct {
	// Provider is what is checked. No key is held yet.
	Provider fencing.LeaseProvider

	// Other shares all keys with Provider, as the provider of another process would. Default: Provider.
	Other fencing.LeaseProvider

	// Now and Sleep are the provider's time. Default: real time.
	Now   func() time.Time
	Sleep func(time.Duration)

	// TTL is that of leases that are meant to run out. A provider in another process needs time
	// enough to answer within it. Default 500ms.
	TTL time.Duration

	// Slack is how long after its Until a lease may still be held. Default 2s.
	Slack time.Duration

	// Timeout bounds one law in real time, so that a provider that hangs fails it. Default 1m.
	Timeout time.Duration
}

func (h Harness) withDefaults() Harness {
	if h.Other == nil {
		h.Other = h.Provider
	}
	if h.Now == nil {
		h.Now = time.Now
	}
	if h.Sleep == nil {
		h.Sleep = time.Sleep
	}
	if h.TTL == 0 {
		h.TTL = 500 * time.Millisecond
	}
	if h.Slack == 0 {
		h.Slack = 2 * time.Second
	}
	if h.Timeout == 0 {
		h.Timeout = time.Minute
	}
	return h
}

// Law is one law of LeaseProvider.
type Law struct {
	Number int    // as in the comment of LeaseProvider
	Name   string // the claim
	check  func(b *bench)
}

// String is the number and the claim.
func (l Law) String() string { return fmt.Sprintf("%02d-%s", l.Number, l.Name) }

// Laws are all laws in their order.
func Laws() []Law {
	return []Law{
		{1, "FreeKeyIsGranted", freeKeyIsGranted},
		{2, "HeldKeyIsRefusedToOthers", heldKeyIsRefusedToOthers},
		{3, "OwnerSetsANewEnd", ownerSetsANewEnd},
		{4, "TokensOnlyRise", tokensOnlyRise},
		{5, "RenewIsForTheHolderOnly", renewIsForTheHolderOnly},
		{6, "WhatHasEndedStaysEnded", whatHasEndedStaysEnded},
		{7, "NobodyElseBeforeUntil", nobodyElseBeforeUntil},
		{8, "LeasesEndByThemselves", leasesEndByThemselves},
		{9, "ReleaseFreesAtOnce", releaseFreesAtOnce},
		{10, "ReleaseTouchesItsOwnHoldOnly", releaseTouchesItsOwnHoldOnly},
		{11, "BadInputIsRefused", badInputIsRefused},
		{12, "KeysAreIndependent", keysAreIndependent},
		{13, "EndedContextsChangeNothing", endedContextsChangeNothing},
		{14, "OneHolderAtATime", oneHolderAtATime},
	}
}

// Run checks every law in a sub-test of its own, in parallel. newHarness is called once for each.
func Run(t *testing.T, newHarness func(t T) Harness) {
	for _, law := range Laws() {
		t.Run(law.String(), func(t *testing.T) {
			t.Parallel()
			law.run(t, newHarness)
		})
	}
}

// Check runs one law and returns its complaints, none if the provider obeys it.
func Check(law Law, newHarness func(t T) Harness) []string {
	r := &recorder{}
	done := make(chan struct{})
	go func() { // FailNow ends the goroutine it is called on
		defer close(done)
		law.run(r, newHarness)
	}()
	<-done
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	return r.complaints
}

func (l Law) run(t T, newHarness func(t T) Harness) {
	h := newHarness(t).withDefaults()
	ctx, cancel := context.WithTimeout(context.Background(), h.Timeout)
	defer cancel()
	l.check(&bench{T: t, Harness: h, ctx: ctx})
}

// recorder is a T that remembers.
type recorder struct {
	mu         sync.Mutex // guards the fields below
	complaints []string
	cleanups   []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complaints = append(r.complaints, fmt.Sprintf(format, args...))
}

func (r *recorder) FailNow() {
	r.mu.Lock()
	if len(r.complaints) == 0 {
		r.complaints = append(r.complaints, "failed without a message")
	}
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
