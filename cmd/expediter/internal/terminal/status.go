package terminal

import (
	"cmp"
	"fmt"
	"time"
)

// redraw is the least time between two texts, because a terminal is slower than what it reports on.
const redraw = 100 * time.Millisecond

// Status is a line that shows how far something is. It is shown on a terminal, and nowhere else. A nil Status shows nothing.
type Status struct {
	on   Stream
	last time.Time // of the text on the line, zero for an empty line
}

// NewStatus returns a line of a terminal. The caller has to Close it.
func NewStatus(on Stream) *Status { return &Status{on: on} }

// Setf replaces the text, which is cut to the line, unless it was replaced just before.
func (s *Status) Setf(format string, args ...any) {
	if s == nil || !s.on.TTY || time.Since(s.last) < redraw {
		return
	}
	s.last = time.Now()
	text := cut(Printable(fmt.Sprintf(format, args...)), cmp.Or(s.on.Width(), 80)-1)
	fmt.Fprintf(s.on, "\r%s\x1b[K", text) //nolint:errcheck // a terminal that is gone must not end the run
}

// Close empties the line.
func (s *Status) Close() {
	if s != nil && !s.last.IsZero() {
		s.last = time.Time{}
		fmt.Fprint(s.on, "\r\x1b[K") //nolint:errcheck // as above
	}
}
