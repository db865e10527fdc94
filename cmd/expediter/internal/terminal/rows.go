package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Format is the form in which rows are written.
type Format string

// The formats that can be written.
const (
	// FormatJSON is one array of objects, written while the rows come.
	FormatJSON Format = "json"

	// FormatJSONLines is one object per line.
	FormatJSONLines Format = "jsonl"

	// FormatTable is for people: columns of equal width, long names cut, control characters replaced.
	FormatTable Format = "table"
)

// Rows writes rows one by one. Each row is a JSON value, and the cells of a table.
type Rows struct {
	failed error // of the first Add that failed
	format Format
	n      int
	out    io.Writer
	table  *Table
}

// NewRows returns a writer to w. The columns are those of a table.
func NewRows(w io.Writer, format Format, columns ...Column) *Rows {
	r := &Rows{format: format, out: w}
	if format == FormatTable {
		r.table = NewTable(w, columns...)
	}
	return r
}

// Written returns the number of rows that were written.
func (r *Rows) Written() int { return r.n }

// Add adds a row of a list that is in memory. Cells are formatted as by fmt, times in UTC to the second, and the zero time as
// empty. [Rows.Close] returns the error.
func (r *Rows) Add(value any, cells ...any) {
	if r.failed != nil {
		return
	}
	texts := make([]string, len(cells))
	for i, cell := range cells {
		if at, ok := cell.(time.Time); !ok {
			texts[i] = fmt.Sprint(cell)
		} else if !at.IsZero() {
			texts[i] = at.UTC().Format(time.DateTime)
		}
	}
	r.failed = r.Write(value, texts...)
}

// Write adds a row.
func (r *Rows) Write(value any, cells ...string) error {
	r.n++
	if r.format == FormatTable {
		return r.table.Write(cells...)
	}
	var text bytes.Buffer
	if r.format == FormatJSON {
		before := ",\n  "
		if r.n == 1 {
			before = "[\n  "
		}
		text.WriteString(before)
	}
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // URLs and names stay readable
	if err := enc.Encode(value); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	line := text.Bytes()
	if r.format == FormatJSON {
		line = bytes.TrimSuffix(line, []byte("\n"))
	}
	_, err := r.out.Write(line)
	return err
}

// Close writes the rows that are still held, and the end of the format. It does not close the underlying writer. After an Add
// that failed it only returns the error.
func (r *Rows) Close() error {
	switch {
	case r.failed != nil:
		return r.failed
	case r.table != nil:
		return r.table.Close()
	case r.format == FormatJSONLines:
		return nil
	}
	end := "\n]\n"
	if r.n == 0 {
		end = "[]\n"
	}
	_, err := io.WriteString(r.out, end)
	return err
}
