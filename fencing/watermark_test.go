package fencing_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/andresayac/botmesh-etcd/fencing"
)

func TestWatermarkRefusesWhatIsOlderThanWhatItHasSeen(t *testing.T) {
	t.Parallel()
	var w fencing.Watermark
	for _, step := range []struct {
		key     string
		token   fencing.Token
		refused bool
		highest fencing.Token
	}{
		{"a", 0, true, 0},
		{"a", -1, true, 0},
		{"a", math.MinInt64, true, 0},
		{"a", 5, false, 5},
		{"a", 5, false, 5}, // one holder writes many times
		{"a", 4, true, 5},
		{"a", 0, true, 5},
		{"a", 6, false, 6},
		{"a", 5, true, 6},
		{"b", 1, false, 1}, // another key has to do with nothing of this
		{"", 3, false, 3},
		{"a", math.MaxInt64, false, math.MaxInt64},
		{"a", math.MaxInt64 - 1, true, math.MaxInt64},
	} {
		err := w.Admit(step.key, step.token)
		require.Equal(t, step.highest, w.Highest(step.key), "%+v", step)
		if !step.refused {
			require.NoError(t, err, "%+v", step)
			continue
		}
		require.ErrorIs(t, err, fencing.ErrStaleToken)
		var stale *fencing.StaleTokenError
		require.ErrorAs(t, err, &stale)
		require.Equal(t, fencing.StaleTokenError{Key: step.key, Token: step.token, Highest: step.highest}, *stale)
	}
}

func TestForgettingAKeyDropsItsProtection(t *testing.T) {
	t.Parallel()
	var w fencing.Watermark
	w.Forget("a")
	require.NoError(t, w.Admit("a", 5))
	require.NoError(t, w.Admit("b", 5))
	w.Forget("a")
	require.Zero(t, w.Highest("a"))
	require.NoError(t, w.Admit("a", 1))
	require.ErrorIs(t, w.Admit("b", 4), fencing.ErrStaleToken)
}

func TestWatermarkNeverGoesBackUnderConcurrency(t *testing.T) {
	t.Parallel()
	var w fencing.Watermark
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := make(map[string]fencing.Token)
	for range 8 {
		wg.Go(func() {
			last := make(map[string]fencing.Token)
			for range 2000 {
				key, token := fmt.Sprint(rand.N(4)), fencing.Token(1+rand.N(10_000))
				err := w.Admit(key, token)
				now := w.Highest(key)
				if now < last[key] || (err == nil && now < token) || (err != nil && now <= token) {
					t.Errorf("%s: highest %d, was %d, Admit(%d) answered %v", key, now, last[key], token, err)
				}
				last[key] = now
				if err == nil {
					mu.Lock()
					admitted[key] = max(admitted[key], token)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for key, token := range admitted {
		require.Equal(t, token, w.Highest(key))
	}
}
