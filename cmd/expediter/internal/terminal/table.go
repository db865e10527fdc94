package terminal

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
	"golang.org/x/term"
	"golang.org/x/text/unicode/bidi"
)

const (
	// sampleRows is the number of rows that decide the widths of the columns. Wider cells of later rows stick out.
	sampleRows = 200

	// gap is the space between two columns.
	gap = "  "

	// blank is the text of an empty cell.
	blank = "-"

	// usual is the widest line unless it is written to a terminal, which may be wider or narrower.
	usual = 100

	// leastCut is the width to which columns are shortened at most so that a line fits, and mostLast the width of a last column that is not
	// cut, such as that of errors, for which room is made: the rest sticks out.
	leastCut, mostLast = 24, 24
)

// Column configures one column.
type Column struct {
	Name     string // its header
	Optional bool   // left out when it is empty in all of the first rows
	Spare    bool   // left out when the lines are too wide
	Width    int    // the largest of a text, in terminal cells, and less when the lines are too wide; 0 for any
}

// Table writes text in columns, row by row. It keeps only the first rows, which decide the widths. Scripts of double width, combining marks
// and right-to-left names keep their places. It is not safe for concurrent use.
type Table struct {
	buf     *bufio.Writer
	columns []Column
	held    [][]string
	limit   int   // of the width of a line, in terminal cells
	widths  []int // of the columns, -1 for a column that is left out; nil until the widths are known
}

// NewTable returns a table that is written to w. Long values belong into the last column.
func NewTable(w io.Writer, columns ...Column) *Table {
	t := &Table{buf: bufio.NewWriter(w), columns: columns, limit: usual}
	if file, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			t.limit = width
		}
	}
	return t
}

// Write adds a row. When there are fewer cells than columns, the last columns are empty.
func (w *Table) Write(cells ...string) error {
	row := make([]string, len(w.columns))
	for i, cell := range cells[:min(len(row), len(cells))] {
		row[i] = Printable(cell)
	}
	if w.widths != nil {
		return w.line(row)
	}
	if w.held = append(w.held, row); len(w.held) < sampleRows {
		return nil
	}
	return w.release()
}

// Flush writes the rows so far to the underlying writer. It first fixes the widths, if they are not known yet.
func (w *Table) Flush() error { return w.buf.Flush() }

// Close writes the rows that are still held. It does not close the underlying writer.
func (w *Table) Close() error {
	if err := w.release(); err != nil {
		return err
	}
	return w.Flush()
}

// release fixes the widths and writes the rows that wait for them.
func (w *Table) release() error {
	if w.widths != nil {
		return nil
	}
	w.widths = make([]int, len(w.columns))
	head := make([]string, len(w.columns))
	for i, c := range w.columns {
		head[i] = c.Name
		w.widths[i] = width(c, i, w.held)
	}
	w.fit()
	err := w.line(head)
	for i := 0; err == nil && i < len(w.held); i++ {
		err = w.line(w.held[i])
	}
	w.held = nil
	return err
}

func width(c Column, i int, rows [][]string) int {
	most, empty := uniseg.StringWidth(c.Name), true
	for _, row := range rows {
		most = max(most, uniseg.StringWidth(row[i]))
		empty = empty && row[i] == ""
	}
	if c.Width > 0 {
		most = min(most, max(c.Width, uniseg.StringWidth(c.Name)))
	}
	if c.Optional && empty && len(rows) > 0 {
		return -1
	}
	return most
}

// fit leaves out spare columns, from the right, and shortens those whose texts are cut, the widest first, until the lines fit.
func (w *Table) fit() {
	over := -len(gap) - w.limit
	for i, width := range w.widths {
		if i == len(w.widths)-1 && w.columns[i].Width == 0 {
			width = min(width, mostLast)
		}
		if width >= 0 {
			over += width + len(gap)
		}
	}
	for i := len(w.widths) - 1; i >= 0 && over > 0; i-- {
		if w.columns[i].Spare && w.widths[i] >= 0 {
			over -= w.widths[i] + len(gap)
			w.widths[i] = -1
		}
	}
	for ; over > 0; over-- {
		widest, most := -1, leastCut
		for i, c := range w.columns {
			if c.Width > 0 && w.widths[i] > most {
				widest, most = i, w.widths[i]
			}
		}
		if widest < 0 {
			return
		}
		w.widths[widest]--
		w.columns[widest].Width = w.widths[widest]
	}
}

func (w *Table) line(cells []string) error {
	var text, padding strings.Builder
	for i, cell := range cells {
		if w.widths[i] < 0 {
			continue
		}
		cell = cmp.Or(cell, blank)
		if most := w.columns[i].Width; most > 0 {
			cell = cut(cell, most)
		}
		text.WriteString(padding.String()) // so that no line ends with spaces
		padding.Reset()
		padding.WriteString(strings.Repeat(" ", max(w.widths[i]-uniseg.StringWidth(cell), 0)) + gap)
		text.WriteString(isolate(cell))
	}
	text.WriteByte('\n')
	_, err := w.buf.WriteString(text.String())
	return err
}

// leftToRight is the left-to-right mark. It takes no room, and a text between two such marks cannot change the order
// of other text.
const leftToRight = "\u200e"

// isolate keeps the columns in order on terminals that write right-to-left scripts from right to left. Otherwise two
// such names with only spaces and digits between them would change places.
func isolate(cell string) string {
	for _, r := range cell {
		p, _ := bidi.LookupRune(r)
		switch p.Class() {
		case bidi.R, bidi.AL, bidi.AN:
			return leftToRight + cell + leftToRight
		default:
		}
	}
	return cell
}

// cut shortens text to a number of terminal cells, without cutting a character in two.
func cut(text string, cells int) string {
	if uniseg.StringWidth(text) <= cells {
		return text
	}
	var short strings.Builder
	width := 0
	for graphemes := uniseg.NewGraphemes(text); graphemes.Next(); {
		if width += graphemes.Width(); width > cells-1 {
			break
		}
		short.WriteString(graphemes.Str())
	}
	return short.String() + "…"
}

// Printable replaces characters that could move the cursor, colour the terminal or change the direction of the line,
// because names come from files and from strangers.
func Printable(text string) string {
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
