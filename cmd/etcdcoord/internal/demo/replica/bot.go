package replica

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/ledger"
)

// bot is the replica.
type bot struct {
	cfg   Config
	coord coordinator
	store *ledger.Client
	talk  *talk
	log   *slog.Logger

	work sync.WaitGroup // acknowledged updates; added to only while a post is being answered
}

func (b *bot) call() ledger.Call { return ledger.Call{Replica: b.cfg.Incarnation} }

func (b *bot) server() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /webhook", b.webhook)
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(b.log.Handler(), slog.LevelDebug)}
}
