package platform

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/journal"
	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/telegram"
)

// Source gives updates; io.EOF after the last.
type Source interface {
	Next() (telegram.Update, error)
}

// Target is a replica that takes posts.
type Target struct {
	Replica string // incarnation
	URL     string
}

// Pace lets updates out.
type Pace interface {
	// Wait returns when the next update, which is of the given chat, may go out; false when ctx ended.
	Wait(ctx context.Context, chat string) bool
}

// Platform posts. Make it with New, feed it with Run, once.
type Platform struct {
	journal *journal.Journal
	targets func() []Target
	secret  string
	pace    Pace
	client  *http.Client

	next     atomic.Uint64 // round robin
	attempts atomic.Int64
	slots    chan struct{} // one per connection

	mu      sync.Mutex // guards the rest
	queues  map[string][]telegram.Update
	suspect map[string]suspicion // replica -> since it did not answer
}

// connections is how many posts may be unanswered at once; Telegram's max_connections by default.
const connections = 40

// New makes a platform that posts to what targets returns at the time.
func New(j *journal.Journal, targets func() []Target, secret string, pace Pace) *Platform {
	return &Platform{
		journal: j, targets: targets, secret: secret, pace: pace,
		// A connection per post: a replica that stops then refuses the next post, instead of
		// closing a kept connection under it.
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		slots:  make(chan struct{}, connections),
		queues: make(map[string][]telegram.Update), suspect: make(map[string]suspicion),
	}
}

// Run posts everything that source gives and returns when all of it has its 2xx, or ctx has ended
// and no post is under way any more.
func (p *Platform) Run(ctx context.Context, source Source) error {
	var posts sync.WaitGroup
	defer posts.Wait()
	for {
		u, err := source.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !p.pace.Wait(ctx, u.Chat) {
			return nil
		}
		p.journal.Add(journal.Entry{Kind: journal.Sent, Update: u.ID, Chat: u.Chat})
		p.enqueue(ctx, &posts, u)
	}
}

// enqueue puts u behind its chat's other updates. A chat with anything to post has one goroutine.
func (p *Platform) enqueue(ctx context.Context, posts *sync.WaitGroup, u telegram.Update) {
	if u.Chat == "" { // nothing to wait for
		posts.Go(func() { p.deliver(ctx, u) })
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	queue, busy := p.queues[u.Chat]
	p.queues[u.Chat] = append(queue, u)
	if !busy {
		posts.Go(func() { p.drain(ctx, u.Chat) })
	}
}

func (p *Platform) drain(ctx context.Context, chat string) {
	for {
		p.mu.Lock()
		queue := p.queues[chat]
		if len(queue) == 0 || ctx.Err() != nil {
			delete(p.queues, chat) // under the same lock as the look: nobody can append in between
			p.mu.Unlock()
			return
		}
		u := queue[0]
		p.queues[chat] = queue[1:]
		p.mu.Unlock()
		p.deliver(ctx, u)
	}
}

// deliver posts u to one replica after the other until one acknowledges it.
func (p *Platform) deliver(ctx context.Context, u telegram.Update) {
	for failed := 0; ctx.Err() == nil; {
		target, ok := p.pick()
		if !ok {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		if p.post(target, u) {
			return
		}
		// After a round of refusals: every replica says no, so give them time.
		if failed++; failed%3 == 0 {
			pause(ctx, 100*time.Millisecond)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
