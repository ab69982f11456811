package integration_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/andresayac/botmesh-etcd/etcdcoord"
	"github.com/andresayac/botmesh-etcd/integration/testetcd"
)

// Two replicas contend for one key; one operation is one turn. Both sides run on the same etcd,
// with fsync, in the same process:
//
//	go test ./integration -run '^$' -bench Handover -benchtime 3s
func BenchmarkHandover(b *testing.B) {
	etcd := testetcd.New(b)
	b.Run("peer=etcdcoord", func(b *testing.B) {
		bot := newBotOn(b, etcd)
		contend(b, etcd, []func(context.Context) error{
			turnOf(bot.replica("a"), "chat"), turnOf(bot.replica("b"), "chat"),
		})
	})
	b.Run("peer=concurrency.Mutex", func(b *testing.B) {
		prefix := testetcd.Prefix(b)
		contend(b, etcd, []func(context.Context) error{
			lockOf(b, etcd.Client(b), prefix), lockOf(b, etcd.Client(b), prefix),
		})
	})
}

// BenchmarkUncontended is one caller with a key of its own.
func BenchmarkUncontended(b *testing.B) {
	etcd := testetcd.New(b)
	b.Run("peer=etcdcoord", func(b *testing.B) {
		contend(b, etcd, []func(context.Context) error{turnOf(newBotOn(b, etcd).replica("a"), "chat")})
	})
	b.Run("peer=concurrency.Mutex", func(b *testing.B) {
		contend(b, etcd, []func(context.Context) error{lockOf(b, etcd.Client(b), testetcd.Prefix(b))})
	})
}

func turnOf(c *etcdcoord.Coordinator, key string) func(context.Context) error {
	return func(ctx context.Context) error {
		ticket, err := c.Reserve(ctx, key)
		if err != nil {
			return err
		}
		turn, err := c.AcquireTurn(ctx, ticket)
		if err != nil {
			return err
		}
		return turn.Release(ctx)
	}
}

func lockOf(b *testing.B, client *clientv3.Client, prefix string) func(context.Context) error {
	b.Helper()
	session, err := concurrency.NewSession(client)
	require.NoError(b, err)
	b.Cleanup(func() { _ = session.Close() })
	mutex := concurrency.NewMutex(session, prefix)
	return func(ctx context.Context) error {
		if err := mutex.Lock(ctx); err != nil {
			return err
		}
		return mutex.Unlock(ctx)
	}
}

// contend runs b.N turns, spread over the workers, and counts the writes that etcd made of them.
func contend(b *testing.B, etcd *testetcd.Cluster, workers []func(context.Context) error) {
	ctx, plain := context.Background(), etcd.Client(b)
	before := revision(b, plain)
	turns := make(chan struct{})
	var wg sync.WaitGroup
	b.ResetTimer()
	for _, work := range workers {
		wg.Go(func() {
			for range turns {
				if err := work(ctx); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for range b.N {
		turns <- struct{}{}
	}
	close(turns)
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
	b.ReportMetric(float64(revision(b, plain)-before)/float64(b.N), "writes/op")
}

func revision(t testing.TB, client *clientv3.Client) int64 {
	t.Helper()
	answer, err := client.Get(soon(t), "revision")
	require.NoError(t, err)
	return answer.Header.Revision
}
