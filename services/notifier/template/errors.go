package template

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrNotFound is returned when there is no template of a name.
	ErrNotFound = errors.New("there is no such template")

	// ErrTooLong is returned when a text would be longer than MaxText.
	ErrTooLong = fmt.Errorf("the text, or a value in it, has more than %d bytes", MaxText)

	// ErrTooManySteps is returned when a template takes more than MaxSteps.
	ErrTooManySteps = fmt.Errorf("it takes more than %d steps: it loops, or calls itself", MaxSteps)

	// ErrTooSlow is returned when a template takes more than MaxTime.
	ErrTooSlow = fmt.Errorf("it takes longer than %s", MaxTime)
)

// Mistake is one thing that is wrong with a folder of templates.
type Mistake struct {
	// File is where, within the folder.
	File string

	// Line is the line of it, 0 for all of it.
	Line int

	// Text says what is wrong.
	Text string
}

// Error is returned for a folder with mistakes.
type Error struct {
	// Mistakes are all of them, by file and line.
	Mistakes []Mistake
}

// Error returns the mistakes, one in a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.Text)
		if m.Line == 0 {
			lines[i] = m.File + ": " + m.Text
		}
	}
	return strings.Join(lines, "\n")
}

func (e *Error) sort() {
	slices.SortStableFunc(e.Mistakes, func(a, b Mistake) int { return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line) })
}
