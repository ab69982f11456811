package platform

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/replica"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/telegram"
)

const (
	// answerBy is how long a replica has for its 2xx. It must cover a change of etcd's leader.
	answerBy = 2500 * time.Millisecond
	// grace is how much longer the platform waits. A 2xx that was sent at the last moment arrives
	// well within it; so a post that was given up on was not acknowledged.
	grace = time.Second
	// firstSuspicion is how long a replica that did not answer gets no posts; it doubles.
	firstSuspicion = 500 * time.Millisecond
)

// suspicion keeps posts away from a replica that let one run into its deadline. Each such post
// holds up its chat, so a frozen replica must not get every third one.
type suspicion struct {
	until time.Time
	next  time.Duration
}

// pick is the next replica in turn. Suspects are passed over while there are others.
func (p *Platform) pick() (Target, bool) {
	targets := p.targets()
	if len(targets) == 0 {
		return Target{}, false
	}
	p.mu.Lock()
	now := time.Now()
	trusted := slices.DeleteFunc(slices.Clone(targets), func(t Target) bool { return now.Before(p.suspect[t.Replica].until) })
	p.mu.Unlock()
	if len(trusted) > 0 {
		targets = trusted
	}
	return targets[p.next.Add(1)%uint64(len(targets))], true
}

func (p *Platform) suspectOf(replica string, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answered {
		delete(p.suspect, replica)
		return
	}
	s := p.suspect[replica]
	now := time.Now()
	if now.Before(s.until) {
		return // one of several posts that were under way when it fell silent
	}
	s.next = max(firstSuspicion, min(2*s.next, 8*firstSuspicion))
	s.until = now.Add(s.next)
	p.suspect[replica] = s
}

// post makes one attempt; true means 2xx. It is not ended from outside: whether an update was
// acknowledged must be known.
func (p *Platform) post(target Target, u telegram.Update) bool {
	p.slots <- struct{}{}
	defer func() { <-p.slots }()
	attempt := p.attempts.Add(1)
	entry := journal.Entry{Kind: journal.Unacked, Replica: target.Replica, Update: u.ID, Chat: u.Chat, Attempt: attempt}

	ctx, cancel := context.WithTimeout(context.Background(), answerBy+grace)
	defer cancel()
	status, err := p.send(ctx, target, u, attempt)
	switch {
	case err == nil && status/100 == 2:
		entry.Kind = journal.Acked
	case err != nil:
		entry.Note = err.Error()
	default:
		entry.Note = http.StatusText(status)
	}
	p.suspectOf(target.Replica, !errors.Is(err, context.DeadlineExceeded))
	p.journal.Add(entry)
	return entry.Kind == journal.Acked
}

func (p *Platform) send(ctx context.Context, target Target, u telegram.Update, attempt int64) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.URL, bytes.NewReader(u.Raw))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(replica.SecretHeader, p.secret)
	req.Header.Set(replica.AttemptHeader, strconv.FormatInt(attempt, 10))
	req.Header.Set(replica.DeadlineHeader, strconv.FormatInt(time.Now().Add(answerBy).UnixNano(), 10))
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, err
	}
	// The status is the answer. The rest is not waited for: the replica may be frozen behind it.
	return resp.StatusCode, resp.Body.Close()
}
