package screen

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/andresayac/botmesh-etcd/cmd/etcdcoord/internal/demo/judge"
)

// JSON prints the verdict as one line.
func JSON(out io.Writer, v *judge.Verdict) error { return json.NewEncoder(out).Encode(v) }

// Verdict prints the verdict for a reader. With color it may use ANSI colors.
func Verdict(out io.Writer, v *judge.Verdict, color bool) error {
	paint := func(style interface{ Render(...string) string }, text string) string {
		if color {
			return style.Render(text)
		}
		return text
	}
	count := func(n int) string {
		if n == 0 {
			return "0"
		}
		return paint(bad, fmt.Sprint(n))
	}
	text := fmt.Sprintf(`
%-24s%d, of these handled %d, skipped %d
%-24slost %s, duplicates %s, out of order %s, overlaps %s
%-24soffered %d, accepted %s
%-24skilled %d, frozen %d, rolled %d
%-24s%v without progress in a chat that had work; the run took %v
`,
		"updates acknowledged", v.Sent, v.Handled, v.Skipped,
		"violations", count(v.Lost), count(v.Duplicates), count(v.OutOfOrder), count(v.Overlaps),
		"stale writes", v.StaleWritesOffered, count(v.StaleWritesAccepted),
		"replicas", v.ReplicasKilled, v.ReplicasFrozen, v.ReplicasRolled,
		"longest stall", time.Duration(v.MaxStallMS)*time.Millisecond, time.Duration(v.ElapsedMS)*time.Millisecond)
	for _, finding := range v.Findings {
		text += paint(bad, "  "+finding) + "\n"
	}
	switch {
	case v.OK && v.Skipped > 0:
		text += paint(good, fmt.Sprintf("ok: each update was handled once and in its chat's order, but for the %d that were in the hands of a killed or frozen replica", v.Skipped))
	case v.OK:
		text += paint(good, "ok: each update was handled once and in its chat's order")
	case v.Sent == 0:
		text += paint(bad, "not ok: nothing was sent, so nothing was shown")
	default:
		text += paint(bad, fmt.Sprintf("NOT OK: %d violations", v.Violations()))
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
