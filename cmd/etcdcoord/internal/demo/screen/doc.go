// Package screen shows a run: a live table on a terminal, plain lines anywhere else.
package screen
