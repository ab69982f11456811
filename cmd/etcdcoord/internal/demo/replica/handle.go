package replica

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/ledger"
	"github.com/andresayac/botmesh-etcd/fencing"
)

// handle waits for the turn and handles the update. It has no deadline: what was acknowledged is
// waited for as long as it takes.
func (b *bot) handle(p post, place ticket) {
	ctx := context.Background()
	t, err := place.Acquire(ctx)
	if err != nil {
		b.giveUp(p, 0, err)
		return
	}
	if err := b.inTurn(p, t); err != nil {
		b.giveUp(p, t.Fence(), err)
	}
	// Only now: the next holder must find our write. A turn that was lost is released all the
	// same; that touches nobody else's.
	if err := t.Release(ctx); err != nil {
		b.log.Warn("release", "key", p.update.Chat, "fence", t.Fence(), "err", err)
	}
}

// inTurn is the bot's work on one update: read, think, write.
func (b *bot) inTurn(p post, t turn) error {
	call := b.callFor(p, t.Fence())
	view, err := b.store.Begin(t.Context(), call)
	if err != nil {
		return err
	}
	if slices.Contains(view.Updates, p.update.ID) {
		return b.store.Already(t.Context(), call)
	}
	if err := b.think(t.Context()); err != nil {
		return err
	}
	if err := t.AssertHeld(); err != nil {
		return err
	}
	// From here on the write is under way, whatever becomes of the turn; so not under its context.
	call.Base = view.Version
	return b.store.Write(context.Background(), call, append(view.Updates, p.update.ID))
}

// handleWithoutTurn is for updates that have no chat.
func (b *bot) handleWithoutTurn(p post) {
	ctx := context.Background()
	call := b.callFor(p, 0)
	_, err := b.store.Begin(ctx, call)
	if err == nil {
		err = b.think(ctx)
	}
	if err == nil {
		err = b.store.Write(ctx, call, nil)
	}
	if err != nil {
		b.giveUp(p, 0, err)
	}
}

func (b *bot) callFor(p post, fence fencing.Token) ledger.Call {
	call := b.call()
	call.Update, call.Chat, call.Attempt, call.Fence = p.update.ID, p.update.Chat, p.attempt, int64(fence)
	return call
}

// think takes the time that a handler takes, and stops when the turn is lost.
func (b *bot) think(ctx context.Context) error {
	d := b.cfg.WorkMin
	if span := b.cfg.WorkMax - b.cfg.WorkMin; span > 0 {
		d += rand.N(span + 1)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// giveUp tells the store that the update ends here. It is not queued again: others have been let
// past its place, and a new place at the end would break the chat's order.
func (b *bot) giveUp(p post, fence fencing.Token, why error) {
	call := b.callFor(p, fence)
	call.Note = why.Error()
	b.log.Warn("update given up", "update", p.update.ID, "key", p.update.Chat, "fence", fence, "err", why)
	if err := b.store.GaveUp(context.Background(), call); err != nil {
		b.log.Warn("store", "err", err)
	}
}
