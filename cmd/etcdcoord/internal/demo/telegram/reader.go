package telegram

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the longest line that is read. Telegram's updates are far shorter; a file without
// line ends must not fill the memory.
const MaxLine = 1 << 20

// RedeliveryError says that the update_id came before. A platform that got no 2xx posts an
// update again, so a recording of its posts holds such lines.
type RedeliveryError struct {
	ID    int64
	First int // the number of the line on which it came first
}

// Error names the id and the first line.
func (e *RedeliveryError) Error() string {
	return fmt.Sprintf("redelivery: update_id %d came before, on line %d", e.ID, e.First)
}

// LineError is what a line was left out for.
type LineError struct {
	Line int // counted from 1
	Err  error
}

// Error names line and reason.
func (e *LineError) Error() string { return fmt.Sprintf("line %d left out: %v", e.Line, e.Err) }

// Unwrap gives the reason.
func (e *LineError) Unwrap() error { return e.Err }

// Reader reads updates, one JSON object a line. Blank lines are nothing.
type Reader struct {
	in     *bufio.Reader
	report func(*LineError)
	line   int
	first  map[int64]int // update_id -> line
}

// NewReader reads from r and tells report of each line that it leaves out.
func NewReader(r io.Reader, report func(*LineError)) *Reader {
	return &Reader{in: bufio.NewReader(r), report: report, first: make(map[int64]int)}
}

// Next is the next update, or io.EOF after the last, or what reading failed with.
func (r *Reader) Next() (Update, error) {
	for {
		line, long, err := r.readLine()
		// A last line without a line end comes together with io.EOF; it counts.
		if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
			return Update{}, err
		}
		r.line++
		if r.line == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // some editors start a file with a byte order mark
		}
		line = bytes.TrimSpace(line)
		switch {
		case long:
			r.leaveOut(malformed("longer than %d bytes", MaxLine))
			continue
		case len(line) == 0:
			continue
		}
		u, err := Parse(line)
		if err != nil {
			r.leaveOut(err)
			continue
		}
		if first, came := r.first[u.ID]; came {
			r.leaveOut(&RedeliveryError{ID: u.ID, First: first})
			continue
		}
		r.first[u.ID] = r.line
		return u, nil
	}
}

func (r *Reader) leaveOut(err error) { r.report(&LineError{Line: r.line, Err: err}) }

// readLine reads up to and with the line end. Of a line that is too long it drops the rest.
func (r *Reader) readLine() (line []byte, long bool, err error) {
	for {
		part, err := r.in.ReadSlice('\n')
		if len(line)+len(part) > MaxLine {
			long = true
		}
		if !long {
			line = append(line, part...)
		} else if len(line) == 0 {
			line = append(line, ' ') // not empty, so that the caller does not take it for the end
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, long, err
		}
	}
}
