// Package janitor runs what must happen although nobody waits for it: giving places back,
// clean-up after answers that were lost, requests that outlive their caller.
//
// A job that is not done is tried again, with growing pauses, until it is done or the janitor is
// closed. Close is for the end of an epoch: then the lease takes along all that was left to do.
package janitor

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Job makes one attempt and says whether it is done. ctx ends when the janitor is closed; the job
// bounds its requests itself.
type Job func(ctx context.Context) (done bool)

const (
	firstPause = 20 * time.Millisecond
	longPause  = time.Second
)

// Janitor runs jobs on at most a fixed number of goroutines, which exist only while there is work.
type Janitor struct {
	ctx     context.Context
	quit    context.CancelFunc
	workers int
	wg      sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	queue   []task
	running int
	resting map[*time.Timer]struct{} // tasks between two attempts
	closed  bool
}

type task struct {
	job   Job
	pause time.Duration // after the next failed attempt
}

// New makes a janitor with at most so many jobs at a time.
func New(workers int) *Janitor {
	ctx, quit := context.WithCancel(context.Background())
	return &Janitor{ctx: ctx, quit: quit, workers: workers, resting: make(map[*time.Timer]struct{})}
}

// Go takes the job over. It never blocks. After Close the job is dropped.
func (j *Janitor) Go(job Job) { j.add(task{job: job, pause: firstPause}) }

func (j *Janitor) add(t task) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	j.queue = append(j.queue, t)
	if j.running < j.workers {
		j.running++
		j.wg.Go(j.work)
	}
}

func (j *Janitor) work() {
	for {
		t, ok := j.next()
		if !ok {
			return
		}
		if !t.job(j.ctx) {
			j.rest(t)
		}
	}
}

// next takes a task, or ends the worker that asks.
func (j *Janitor) next() (task, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) == 0 || j.closed {
		j.running--
		return task{}, false
	}
	t := j.queue[0]
	j.queue[0] = task{} // let go of what the job holds
	j.queue = j.queue[1:]
	return t, true
}

// rest keeps the task until it is time for another attempt.
func (j *Janitor) rest(t task) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	pause := t.pause/2 + rand.N(t.pause/2+1)
	t.pause = min(2*t.pause, longPause)
	var timer *time.Timer
	timer = time.AfterFunc(pause, func() {
		j.mu.Lock()
		delete(j.resting, timer)
		j.mu.Unlock()
		j.add(t)
	})
	j.resting[timer] = struct{}{}
}

// Close drops what is waiting, ends the context of what runs, and waits for it.
func (j *Janitor) Close() {
	j.mu.Lock()
	j.closed = true
	j.queue = nil
	for timer := range j.resting {
		timer.Stop()
	}
	clear(j.resting)
	j.mu.Unlock()
	j.quit()
	j.wg.Wait()
}
