package rules

import (
	"fmt"
	"strings"
)

// Mistake is one that a file of rules has.
type Mistake struct {
	// Line is the line of the mistake, counted from 1; 0 stands for the whole file.
	Line int

	// Path is what of the file, such as events.RESERVATION_REQUESTED.CUSTOMER.channels.
	Path string

	// Problem is what is wrong, and what is wanted.
	Problem string
}

// String says where and what.
func (m Mistake) String() string {
	text := m.Problem
	if m.Path != "" {
		text = m.Path + " " + text
	}
	if m.Line > 0 {
		text = fmt.Sprintf("line %d: %s", m.Line, text)
	}
	return text
}

// Error is returned for a file of rules that has mistakes.
type Error struct {
	// Mistakes are all of them, in the order of the lines.
	Mistakes []Mistake
}

// Error returns all mistakes, one on each line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}
