package election

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	auditEvery = time.Second
	auditLimit = 2 * time.Second // one look; the next may find a healthy endpoint
	auditBatch = 50              // names per look, each at most two gets
)

// entry is one key of ours to look at.
type entry struct {
	own  *candidate
	rev  int64
	lead *Leadership // nil while campaigning
	run  *campaign   // nil while leading
}

// audits looks after the keys that nobody else looks at: a leader's, and a campaigner's while its
// watch is on somebody else's. One goroutine does it for all names.
func (e *Elector) audits() {
	timer := time.NewTimer(auditEvery)
	defer timer.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-timer.C:
		}
		entries := e.entries()
		for len(entries) > 0 && e.ctx.Err() == nil {
			n := min(len(entries), auditBatch)
			e.audit(entries[:n])
			entries = entries[n:]
		}
		timer.Reset(auditEvery)
	}
}

func (e *Elector) entries() []entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]entry, 0, len(e.leaders)+len(e.campaigns))
	for _, l := range e.leaders {
		all = append(all, entry{own: &l.own, rev: l.own.rev, lead: l})
	}
	for _, c := range e.campaigns {
		if rev := c.inEtcd.Load(); rev != 0 {
			all = append(all, entry{own: &c.own, rev: rev, run: c})
		}
	}
	return all
}

// audit reads the registration, and for each name our key and the oldest candidate.
func (e *Elector) audit(entries []entry) {
	ctx, cancel := context.WithTimeout(e.ctx, min(auditLimit, e.cfg.RequestTimeout))
	defer cancel()
	reg, _ := e.cfg.Session.Registration()
	ops := make([]clientv3.Op, 0, 1+2*len(entries))
	ops = append(ops, clientv3.OpGet(reg)) // whole, like our keys, for the lease
	for _, at := range entries {
		ops = append(ops, clientv3.OpGet(at.own.key),
			clientv3.OpGet(at.own.prefix, append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...))
	}
	answer, err := e.commit(ctx, nil, ops, nil)
	if err != nil {
		e.cfg.Logger.Debug("audit failed", "replica", e.cfg.ReplicaID, "err", err)
		return // whether the session lives is not decided here
	}
	// Without the registration the session is lost, and its keys with it: that is no eviction.
	if e.cfg.Session.SawRegistration(read(answer, 0).Kvs) != nil {
		return
	}
	for i, at := range entries {
		if answer.Header.Revision < at.rev {
			continue // of another history: an etcd restored from a snapshot. The session will find out
		}
		e.judge(at, read(answer, 1+2*i), read(answer, 2+2*i))
	}
}

// judge compares what a look found with what should be there.
func (e *Elector) judge(at entry, own, head *clientv3.GetResponse) {
	present := len(own.Kvs) > 0 && own.Kvs[0].CreateRevision == at.rev
	// A put by hand takes our lease off the key, which would then outlive us.
	spoiled := present && own.Kvs[0].Lease != int64(e.cfg.Session.Lease())
	switch {
	case at.lead != nil:
		if !present || spoiled {
			e.evicted(at.lead, spoiled)
		}
	case at.run.inEtcd.Load() != at.rev: // it has moved on meanwhile
	case !present, spoiled:
		at.run.watcher.wake()
	case len(head.Kvs) > 0 && string(head.Kvs[0].Key) == at.own.key:
		// It may be about to notice. A second time means that its watch is dead: on an endpoint that does
		// not answer any more, say.
		if at.run.headSeen.Add(1) > 1 {
			at.run.watcher.wake()
		}
	default:
		at.run.headSeen.Store(0)
	}
}
