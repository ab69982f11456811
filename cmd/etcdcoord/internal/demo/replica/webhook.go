package replica

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/telegram"
)

// post is one delivery of an update.
type post struct {
	update   telegram.Update
	attempt  int64
	deadline time.Time
}

func (p post) late() bool { return !time.Now().Before(p.deadline) }

func (b *bot) webhook(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(SecretHeader) != b.cfg.Secret {
		http.Error(w, "wrong secret token", http.StatusForbidden)
		return
	}
	p, err := readPost(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if p.late() {
		b.refuse(w, p, "its deadline passed before the replica saw it")
		return
	}
	if p.update.Chat == "" {
		if b.acknowledge(w, p) {
			b.work.Go(func() { b.handleWithoutTurn(p) })
		}
		return
	}
	// r.Context ends when the platform closes the connection.
	ctx, cancel := context.WithDeadline(r.Context(), p.deadline)
	defer cancel()
	place, err := b.coord.Reserve(ctx, p.update.Chat)
	if err != nil {
		b.refuse(w, p, err.Error())
		return
	}
	if p.late() || !b.acknowledge(w, p) {
		b.log.Warn("place given up: the post was abandoned meanwhile", "update", p.update.ID, "key", p.update.Chat)
		if err := place.Cancel(r.Context()); err != nil {
			b.log.Warn("cancel", "key", p.update.Chat, "err", err)
		}
		b.refuse(w, p, "its deadline passed while the place was being reserved")
		return
	}
	b.work.Go(func() { b.handle(p, place) })
}

func readPost(r *http.Request) (post, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, telegram.MaxLine+1))
	if err != nil {
		return post{}, err
	}
	p := post{}
	if p.update, err = telegram.Parse(body); err != nil {
		return post{}, err
	}
	if p.attempt, err = strconv.ParseInt(r.Header.Get(AttemptHeader), 10, 64); err != nil {
		return post{}, err
	}
	nanos, err := strconv.ParseInt(r.Header.Get(DeadlineHeader), 10, 64)
	p.deadline = time.Unix(0, nanos)
	return p, err
}

// acknowledge sends the 2xx before any work begins.
func (b *bot) acknowledge(w http.ResponseWriter, p post) bool {
	w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(w).Flush(); err != nil {
		b.log.Warn("2xx not sent", "update", p.update.ID, "err", err)
		return false
	}
	return true
}

// refuse answers 503: the platform will post the update again, here or elsewhere. After a 2xx
// that could not be sent it has no effect, and needs none.
func (b *bot) refuse(w http.ResponseWriter, p post, why string) {
	b.log.Info("post refused", "update", p.update.ID, "key", p.update.Chat, "why", why)
	http.Error(w, why, http.StatusServiceUnavailable)
}
