// Package terminal is what a person at a terminal sees: lists and tables, a line of status, and a command that runs in the foreground.
package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Stream is a writer of a command's output.
type Stream struct {
	io.Writer

	// Color reports whether to use colours: on a terminal with colours, unless NO_COLOR is set.
	Color bool

	// TTY reports whether the stream is a terminal.
	TTY bool
}

// Width returns the number of cells of a line of the terminal; 0 when it is not known, and without a terminal.
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

// NewStream examines a writer, with the environment that getenv reads. NO_COLOR follows https://no-color.org: any value but
// the empty one turns colours off.
func NewStream(w io.Writer, getenv func(string) string) Stream {
	file, ok := w.(*os.File)
	tty := ok && term.IsTerminal(int(file.Fd()))
	return stream(w, tty, getenv)
}

func stream(w io.Writer, tty bool, getenv func(string) string) Stream {
	return Stream{Writer: w, TTY: tty, Color: tty && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}
