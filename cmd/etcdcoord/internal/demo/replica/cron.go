package replica

import (
	"context"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/ledger"
)

// beatEvery is how often the leader writes its heartbeat.
const beatEvery = 250 * time.Millisecond

// cron campaigns and, while it leads, does what only one replica may do: here, a heartbeat with
// the leadership's fence. It ends with ctx, and resigns.
func (b *bot) cron(ctx context.Context) {
	for ctx.Err() == nil {
		lead, err := b.coord.Lead(ctx, CronName)
		if err != nil {
			if ctx.Err() == nil {
				b.log.Warn("lead", "err", err)
				pause(ctx, beatEvery)
			}
			continue
		}
		b.talk.say(Message{Event: "leads " + CronName + " (fence " + lead.Fence().String() + ")"})
		b.talk.leads(true)
		b.beat(ctx, lead)
		b.talk.leads(false)
		if err := lead.Resign(ctx); err != nil {
			b.log.Warn("resign", "err", err)
		}
	}
}

func (b *bot) beat(ctx context.Context, lead leadership) {
	call := ledger.Call{Replica: b.cfg.Incarnation, Chat: CronName, Fence: int64(lead.Fence())}
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		// Both contexts must be looked at first: of two ready cases select takes any.
		if ctx.Err() != nil || lead.Context().Err() != nil {
			return
		}
		if err := b.store.Beat(lead.Context(), call); err != nil {
			b.log.Warn("heartbeat", "fence", lead.Fence(), "err", err)
		}
		select {
		case <-ctx.Done():
		case <-lead.Context().Done():
		case <-tick.C:
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
