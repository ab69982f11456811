package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheWindowCountsFromTheSendTime(t *testing.T) {
	t.Parallel()
	const s = time.Second
	type renewal struct{ sent, ttl time.Duration }
	for claim, c := range map[string]struct {
		margin   time.Duration
		renewals []renewal
		closes   time.Duration // the first reading at which it is closed
	}{
		"a margin before etcd's earliest expiry":             {2 * s, []renewal{{100 * s, 10 * s}}, 108 * s},
		"the next renewal moves the end by the time between": {2 * s, []renewal{{100 * s, 10 * s}, {103 * s, 10 * s}}, 111 * s},
		"an answer out of order takes nothing away":          {2 * s, []renewal{{103 * s, 10 * s}, {100 * s, 10 * s}}, 111 * s},
		"a shorter TTL does not take back what was granted":  {2 * s, []renewal{{100 * s, 10 * s}, {101 * s, 3 * s}}, 108 * s},
		"a longer TTL counts":                                {2 * s, []renewal{{100 * s, 10 * s}, {101 * s, 30 * s}}, 129 * s},
		"a margin of the whole TTL never opens":              {10 * s, []renewal{{100 * s, 10 * s}}, 100 * s},
		"no renewal, no trust":                               {2 * s, nil, 0},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			w := window{margin: c.margin}
			for _, r := range c.renewals {
				w = w.renewed(r.sent, r.ttl)
			}
			require.True(t, w.open(c.closes-1))
			require.False(t, w.open(c.closes))
			require.False(t, w.open(c.closes+time.Hour))
			require.Equal(t, 3*s, w.left(c.closes-3*s))
			require.Equal(t, -3*s, w.left(c.closes+3*s))
		})
	}
}

func TestTheZeroWindowIsClosed(t *testing.T) {
	t.Parallel()
	require.False(t, window{}.open(0))
	require.False(t, window{}.open(time.Hour))
}
