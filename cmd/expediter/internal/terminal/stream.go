// Package terminal detects the abilities of a terminal behind a stream.
package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Stream is where a command writes to.
type Stream struct {
	io.Writer

	// Color reports whether to use colours: on a terminal that has them, unless NO_COLOR is set.
	Color bool

	// TTY reports whether a person is watching.
	TTY bool
}

// Width is how many cells a line of the terminal has; 0 when it is not known, and where there is none.
func (s Stream) Width() int {
	file, ok := s.Writer.(*os.File)
	if !ok || !s.TTY {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// New looks at a writer, with the environment that getenv reads. NO_COLOR follows https://no-color.org: any value but
// the empty one turns colours off.
func New(w io.Writer, getenv func(string) string) Stream {
	file, ok := w.(*os.File)
	tty := ok && term.IsTerminal(int(file.Fd()))
	return stream(w, tty, getenv)
}

func stream(w io.Writer, tty bool, getenv func(string) string) Stream {
	return Stream{Writer: w, TTY: tty, Color: tty && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}
