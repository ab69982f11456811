package fencing

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
)

// ends knows when each etcd lease that this process granted has to end, and sees to it by revoking
// it then. It is the one place where anything of ours ends.
//
// Revoking is exact: a record hangs on the etcd lease that was granted for the write of this very
// record, so the revoke takes the record along as long as nobody has written it since, and hits
// nothing after any later write, whoever made it. It is final as well: etcd applies no write that
// names a lease which is gone, so after a revoke not even a lost request can come to life. That is
// why a revoke may be late, doubled, or made by two processes.
type ends struct {
	client *clientv3.Client
	chores *chores

	mu       sync.Mutex // guards the fields below, and those of each end
	leases   map[clientv3.LeaseID]*end
	versions map[string]map[clientv3.LeaseID]*end // by etcd key: what was set with setVersion
	closing  bool
}

func newEnds(client *clientv3.Client, chores *chores) *ends {
	return &ends{
		client: client, chores: chores,
		leases:   make(map[clientv3.LeaseID]*end),
		versions: make(map[string]map[clientv3.LeaseID]*end),
	}
}

// end is the end of one etcd lease. It is only ever moved forward.
type end struct {
	at    time.Time
	timer *time.Timer // nil once the revoke is under way
	// unborn: the answer to the grant of the lease was lost, so that etcd may not know it yet.
	unborn bool

	// What setVersion was told.
	etcdKey string
	mod     int64
	granted bool
}

// unbornPause is how long a grant that was given up may be on its way to etcd. Nothing depends on
// it but an etcd lease without keys that would live for its TTL.
const unbornPause = time.Second

// set makes the etcd lease end at that moment. A later moment than one set before is ignored.
func (e *ends) set(id clientv3.LeaseID, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.put(id, at, end{})
}

// setUnborn ends at once a lease of which it is not known whether it was ever granted.
func (e *ends) setUnborn(id clientv3.LeaseID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.put(id, time.Now(), end{unborn: true})
}

// setVersion is set for a lease that carries the version mod of the record under etcdKey, or to
// which a lost write may have moved that version, or may yet move it. granted: it is the former.
func (e *ends) setVersion(id clientv3.LeaseID, at time.Time, etcdKey string, mod int64, granted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.put(id, at, end{etcdKey: etcdKey, mod: mod, granted: granted})
	of := e.leases[id]
	if of == nil || of.etcdKey == "" { // closing, or ending already
		return
	}
	if e.versions[etcdKey] == nil {
		e.versions[etcdKey] = make(map[clientv3.LeaseID]*end)
	}
	e.versions[etcdKey][id] = of
	for _, other := range e.versions[etcdKey] {
		if granted && other.granted && other.mod > mod { // our answer was slow, and theirs not
			e.put(id, time.Now(), end{})
		}
	}
}

// endVersions ends at once the leases of all versions before that one. It is for when a version has
// been written or deleted, so that nothing hangs on the leases of earlier ones, and no lost write
// can be applied on top of them; or when the key is given back, and nothing is wanted there.
func (e *ends) endVersions(etcdKey string, before int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, of := range e.versions[etcdKey] {
		if of.mod < before {
			e.put(id, time.Now(), end{})
		}
	}
}

// put adds the end of a lease, or moves it forward. The caller holds mu.
func (e *ends) put(id clientv3.LeaseID, at time.Time, fresh end) {
	left := time.Until(at)
	if e.closing && left > 0 {
		return // Close frees no lease
	}
	of := e.leases[id]
	switch {
	case of == nil:
		of = &fresh
		e.leases[id] = of
	case of.timer == nil || !at.Before(of.at):
		return
	default:
		of.timer.Stop()
		of.timer = nil
	}
	of.at = at
	if left <= 0 {
		e.due(id, of)
		return
	}
	of.timer = time.AfterFunc(left, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		// Not if the end was moved forward, or Close forgot it, while this timer fired.
		if e.leases[id] == of && of.timer != nil {
			of.timer = nil
			e.due(id, of)
		}
	})
}

// due hands the revoke over to the background. The caller holds mu.
func (e *ends) due(id clientv3.LeaseID, of *end) {
	unborn := of.unborn
	e.chores.do("ending an etcd lease", func(ctx context.Context) (bool, error) {
		gone, err := e.revoke(ctx, id)
		if err != nil {
			return false, err
		}
		if unborn && gone && time.Since(of.at) < unbornPause {
			return false, nil
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.forget(id)
		return true, nil
	}, "lease", leaseHex(id))
}

// revoke ends the etcd lease now. gone: etcd did not know it (any more).
func (e *ends) revoke(ctx context.Context, id clientv3.LeaseID) (gone bool, err error) {
	_, err = e.client.Revoke(ctx, id)
	if backend.Classify(err) == backend.LeaseGone {
		return true, nil
	}
	return false, err
}

// past says that the lease has reached its end: whatever etcd still shows on it is held by nobody.
func (e *ends) past(id clientv3.LeaseID) bool {
	at, ok := e.of(id)
	return ok && !at.After(time.Now())
}

// of is the end of the lease, if this process granted it and it has not been revoked yet.
func (e *ends) of(id clientv3.LeaseID) (time.Time, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if of := e.leases[id]; of != nil {
		return of.at, true
	}
	return time.Time{}, false
}

// close forgets every end that is not due yet.
func (e *ends) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closing = true
	for id, of := range e.leases {
		if of.timer != nil {
			of.timer.Stop()
			e.forget(id)
		}
	}
}

// forget drops a lease. The caller holds mu.
func (e *ends) forget(id clientv3.LeaseID) {
	of := e.leases[id]
	if of == nil {
		return
	}
	delete(e.leases, id)
	delete(e.versions[of.etcdKey], id)
	if len(e.versions[of.etcdKey]) == 0 {
		delete(e.versions, of.etcdKey)
	}
}
