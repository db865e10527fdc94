package output

import (
	"bufio"
	"fmt"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
)

const (
	// tableSample is how many rows decide on the widths of the columns. Later rows keep them, and stick out when they
	// are wider.
	tableSample = 200

	// tableName is the most terminal cells that a name takes.
	tableName = 40

	columnStatus = 2
)

var tableHeader = []string{"PLACE ID", "NAME", "STATUS", "URL", "SCORE", "VENUE", "REASON"}

type tableWriter struct {
	buf    *bufio.Writer
	color  bool
	held   [][]string
	widths []int
}

func (w *tableWriter) Write(row Row) error {
	venue := row.Venue
	if venue == "" {
		venue = row.VenueID
	}
	cells := []string{row.PlaceID, cut(row.Name), row.Status, row.URL, score(row.Score), cut(venue), row.Reason}
	for i, cell := range cells {
		if cells[i] = printable(cell); cells[i] == "" {
			cells[i] = "-"
		}
	}
	if w.widths != nil {
		return w.line(cells)
	}
	if w.held = append(w.held, cells); len(w.held) < tableSample {
		return nil
	}
	return w.release()
}

func (w *tableWriter) Flush() error { return flush(w.buf) }

func (w *tableWriter) Close() error {
	if err := w.release(); err != nil {
		return err
	}
	return flush(w.buf)
}

// release fixes the widths and writes the rows that waited for them.
func (w *tableWriter) release() error {
	if w.widths != nil {
		return nil
	}
	rows := append([][]string{tableHeader}, w.held...)
	w.held, w.widths = nil, make([]int, len(tableHeader))
	for _, cells := range rows {
		for i, cell := range cells {
			w.widths[i] = max(w.widths[i], uniseg.StringWidth(cell))
		}
	}
	for _, cells := range rows {
		if err := w.line(cells); err != nil {
			return err
		}
	}
	return nil
}

func (w *tableWriter) line(cells []string) error {
	var text strings.Builder
	for i, cell := range cells {
		padding := max(w.widths[i]-uniseg.StringWidth(cell), 0)
		if color := colors[cell]; w.color && i == columnStatus && color != "" {
			cell = color + cell + "\x1b[0m"
		}
		text.WriteString(cell)
		if i < len(cells)-1 {
			text.WriteString(strings.Repeat(" ", padding+2))
		}
	}
	text.WriteByte('\n')
	if _, err := w.buf.WriteString(text.String()); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

var colors = map[string]string{"FOUND": "\x1b[32m", "NOT_FOUND": "\x1b[33m", "PENDING": "\x1b[36m"}

// cut shortens text to what a column of names may take, without cutting a character in two.
func cut(text string) string {
	if uniseg.StringWidth(text) <= tableName {
		return text
	}
	var short strings.Builder
	width := 0
	for graphemes := uniseg.NewGraphemes(text); graphemes.Next(); {
		if width += graphemes.Width(); width > tableName-1 {
			break
		}
		short.WriteString(graphemes.Str())
	}
	return short.String() + "…"
}

// printable replaces what could move the cursor, colour the terminal or turn the direction of the line: names come from
// files and from strangers.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case unicode.IsControl(r), r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069', r == '\u2028', r == '\u2029':
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
}
