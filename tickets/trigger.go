package tickets

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/andresayac/botmesh-etcd/internal/backend"
	"github.com/andresayac/botmesh-etcd/internal/watch"
)

// A trigger says that a ticket may have become head without knowing it. There are four: a nudge in
// the inbox; a registration that vanished; a watch that was opened again and may have missed one
// of the former; the audit. All of them may come late, twice, or for nothing.

// TriggerAll is a trigger for every key: a replica is gone, or a watch was rebuilt.
func (q *Queue) TriggerAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		q.triggerLocked(l)
	}
}

func (q *Queue) trigger(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[key]; l != nil {
		q.triggerLocked(l)
	}
}

// triggerLocked marks the oldest live ticket, if it waits, and every ticket whose Reserve is in
// flight: one of those may be head already, and only the answer that tells its fence is missing.
func (q *Queue) triggerLocked(l *line) {
	for t := range l.flying {
		t.dirty = true
	}
	if t := l.oldest(); t != nil && t.state == waiting {
		t.dirty = true
	}
	q.kickLocked(l)
}

// readInbox is told of nudges for as long as the epoch lives.
func (q *Queue) readInbox() {
	inbox := q.cfg.Schema.Inbox(q.lease)
	watch.Follow(q.life, q.cfg.Client, inbox, q.cfg.RequestTimeout, watch.Follower{
		Opened: func(context.Context) error {
			q.readied.Do(func() { close(q.ready) })
			q.TriggerAll() // covers every nudge that is in the inbox now
			q.cfg.Janitor.Go(q.sweepInbox)
			return nil
		},
		Event: func(event *clientv3.Event) {
			if event.Type != clientv3.EventTypePut {
				return
			}
			if key, _, ok := q.cfg.Schema.ParseNudge(string(event.Kv.Key), q.lease); ok {
				q.trigger(key)
			}
			q.removeStrayNudge(event.Kv)
		},
		Broken: func(err error) {
			q.cfg.Logger.Debug("inbox watch broke, it is opened again", "replica", q.cfg.ReplicaID, "err", err)
		},
	})
}

// sweepInbox looks for what nobody of ours wrote while no watch was open.
func (q *Queue) sweepInbox(ctx context.Context) (done bool) {
	request, cancel := backend.WithTimeout(ctx, q.cfg.RequestTimeout)
	defer cancel()
	answer, err := q.cfg.Client.Get(request, q.cfg.Schema.Inbox(q.lease), clientv3.WithPrefix())
	if err != nil {
		return false
	}
	for _, kv := range answer.Kvs {
		q.removeStrayNudge(kv)
	}
	return true
}
