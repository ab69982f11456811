package replica

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/ledger"
)

// bot is the replica's state.
type bot struct {
	cfg   Config
	coord coordinator
	store *ledger.Client
	talk  *talk
	log   *slog.Logger

	work sync.WaitGroup // acknowledged updates; added to only while a post is being answered

	mu      sync.Mutex // guards status
	status  Status
	changed bool
}

func (b *bot) update(f func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.status)
	b.changed = true
}

// reportStatus sends the status five times a second, if there is anything new.
func (b *bot) reportStatus(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.mu.Lock()
		status, changed := b.status, b.changed
		b.changed = false
		b.mu.Unlock()
		if changed {
			b.talk.say(Message{Status: &status})
		}
	}
}

func (b *bot) call() ledger.Call { return ledger.Call{Replica: b.cfg.Incarnation} }

func (b *bot) server() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /webhook", b.webhook)
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelDebug)}
}
