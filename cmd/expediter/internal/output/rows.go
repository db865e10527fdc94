package output

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
)

// Rows writes rows as they come. Each is a JSON value, and the cells of a table or of CSV.
type Rows struct {
	csv    *csv.Writer
	format Format
	n      int
	out    io.Writer
	table  *table.Writer
}

// NewRows returns a writer to w. The names of the columns are the head of a table, and of CSV.
func NewRows(w io.Writer, format Format, columns ...table.Column) *Rows {
	r := &Rows{format: format, out: w}
	switch format {
	case FormatTable:
		r.table = table.New(w, columns...)
	case FormatCSV:
		r.csv = csv.NewWriter(w)
		head := make([]string, len(columns))
		for i, c := range columns {
			head[i] = c.Name
		}
		_ = r.csv.Write(head) //nolint:errcheck // Flush reports it
	case FormatJSON, FormatJSONLines:
	}
	return r
}

// Format is that of the rows.
func (r *Rows) Format() Format { return r.format }

// Written is how many rows there are.
func (r *Rows) Written() int { return r.n }

// Write adds a row.
func (r *Rows) Write(value any, cells ...string) error {
	r.n++
	switch r.format {
	case FormatTable:
		return r.table.Write(cells...)
	case FormatCSV:
		return wrap(r.csv.Write(cells))
	case FormatJSON, FormatJSONLines:
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
	return wrap(err)
}

// Flush writes the rows so far to the underlying writer. A table holds its first rows back until their widths are known.
func (r *Rows) Flush() error {
	switch {
	case r.table != nil:
		return r.table.Flush()
	case r.csv != nil:
		r.csv.Flush()
		return wrap(r.csv.Error())
	}
	return nil
}

// Close writes what is still held and the end of the format. It does not close what it writes to.
func (r *Rows) Close() error {
	switch {
	case r.table != nil:
		return r.table.Close()
	case r.format != FormatJSON:
		return r.Flush()
	}
	end := "\n]\n"
	if r.n == 0 {
		end = "[]\n"
	}
	_, err := io.WriteString(r.out, end)
	return wrap(err)
}

func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
