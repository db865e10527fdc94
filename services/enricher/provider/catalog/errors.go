package catalog

import (
	"errors"
	"fmt"
	"strings"
)

// ErrFormat is returned when a file is not JSON, JSON Lines or CSV, or has no column
// for the id or the name.
var ErrFormat = errors.New("not a file of venues")

// ErrTooLarge is returned when a file has more bytes or venues than are accepted.
var ErrTooLarge = errors.New("more venues than are accepted")

// maxRowErrors bounds the bad rows that are named; the rest is counted.
const maxRowErrors = 1000

// RowError is the error of one row.
type RowError struct {
	// Line is the line of the file that the row starts on, from 1.
	Line int

	// Problems are what is wrong.
	Problems []string
}

// Error is one line.
func (e RowError) Error() string {
	return fmt.Sprintf("line %d: %s", e.Line, strings.Join(e.Problems, "; "))
}

// LoadError is returned when rows cannot be used. It names them all, at once.
type LoadError struct {
	// More is how many further rows are bad, beyond the first 1000.
	More int

	// Rows are the bad rows by line.
	Rows []RowError
}

// Error has a line for each bad row.
func (e *LoadError) Error() string {
	var b strings.Builder

	fmt.Fprintf(&b, "%d of the rows cannot be used:", len(e.Rows)+e.More)

	for _, row := range e.Rows {
		b.WriteString("\n  " + row.Error())
	}

	if e.More > 0 {
		fmt.Fprintf(&b, "\n  and %d more", e.More)
	}
	return b.String()
}
