package screen

import (
	"context"
	"fmt"
	"io"
	"time"
)

// progressEvery is how often plain output tells how far it is.
const progressEvery = 3 * time.Second

// Plain writes lines to out, and now and then the progress, until ctx ends and lines is empty.
func Plain(ctx context.Context, out io.Writer, board func() Board, lines <-chan Line) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case l := <-lines:
			_, _ = fmt.Fprintln(out, l)
		case <-tick.C:
			b := board()
			_, _ = fmt.Fprintln(out, Line{At: b.Elapsed, Text: b.progress()})
		case <-ctx.Done():
			for {
				select {
				case l := <-lines:
					_, _ = fmt.Fprintln(out, l)
				default:
					return
				}
			}
		}
	}
}
