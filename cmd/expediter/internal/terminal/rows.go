package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/expediter-io/expediter/internal/operate"
)

// Format is the form in which rows are written.
type Format string

// The formats that can be written.
const (
	FormatJSON      Format = "json"  // one array of objects, written while the rows come
	FormatJSONLines Format = "jsonl" // one object per line
	FormatTable     Format = "table" // for people: columns of equal width, long names cut, control characters replaced
)

// Rows writes rows one by one. Each row is a JSON value, and the cells of a table.
type Rows struct {
	empty  string
	failed error // of the first Add that failed
	format Format
	n      int
	note   func(string)
	notes  []string // for after the rows
	out    io.Writer
	table  *Table
}

// NewRows returns a writer to w. The columns are those of a table. note takes lines for the person, among them empty, for a table without
// rows.
func NewRows(w io.Writer, format Format, note func(string), empty string, columns ...Column) *Rows {
	r := &Rows{empty: empty, format: format, note: note, out: w}
	if format == FormatTable {
		r.table = NewTable(w, columns...)
	}
	return r
}

// Err returns the error of the first row that could not be written. A command that would go on to read what cannot be shown asks for it.
func (r *Rows) Err() error { return r.failed }

// Time returns a time as every output for people has it, in UTC to the second, and "" for the zero time.
func Time(at time.Time) string { return operate.Stamp(at) }

// Notef has a line for the person written once the rows are written: on a terminal it would otherwise stand in the middle of one.
func (r *Rows) Notef(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// Add adds a row. Cells are formatted as by fmt, and times as by [Time]. [Rows.Close] returns the error; rows after the first that
// failed are left out.
func (r *Rows) Add(value any, cells ...any) {
	if r.failed != nil {
		return
	}
	texts := make([]string, len(cells))
	for i, cell := range cells {
		if at, ok := cell.(time.Time); ok {
			cell = Time(at)
		}
		texts[i] = fmt.Sprint(cell)
	}
	r.n++
	r.failed = r.write(value, texts)
}

func (r *Rows) write(value any, cells []string) error {
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

// Close writes the rows that are still held, the end of the format, and the notes, for a list that ended with an error or nil. It does not
// close the underlying writer. Of a list that failed before its first row, or of a row that could not be written, it writes notes only.
func (r *Rows) Close(err error) error {
	if err = errors.Join(err, r.failed); err == nil || r.n > 0 && r.failed == nil {
		err = errors.Join(err, r.end())
	}
	for _, note := range r.notes {
		r.note(note)
	}
	return err
}

func (r *Rows) end() error {
	switch {
	case r.table != nil && r.n == 0:
		r.notes = append(r.notes, r.empty)
		return nil
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
