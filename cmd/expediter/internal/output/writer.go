// Package output writes the results of a run as a table, CSV, JSON or JSON Lines, row by row and in the order in which
// they are given, so that memory does not grow with their number.
package output

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// Writer writes rows. Close ends the output but does not close what it writes to; without a Close the output is not
// complete. A Writer is for one goroutine.
type Writer interface {
	// Close writes what is still held and the end of the format.
	Close() error

	// Flush writes the rows so far to the underlying writer. A table holds its first rows back until their widths are
	// known.
	Flush() error

	// Write adds a row.
	Write(row Row) error
}

// Options says how rows are written.
type Options struct {
	// Color marks the statuses of a table with ANSI colours. Defaults to false.
	Color bool

	// Format is the form of the output. Defaults to FormatTable.
	Format Format
}

// New returns a writer to w, or ErrFormat.
func New(w io.Writer, opts Options) (Writer, error) {
	if opts.Format == "" {
		opts.Format = FormatTable
	}
	format, err := ParseFormat(string(opts.Format))
	if err != nil {
		return nil, err
	}
	buffered := bufio.NewWriter(w)
	switch format {
	case FormatCSV:
		return &csvWriter{rows: csv.NewWriter(buffered), buf: buffered}, nil
	case FormatJSON:
		return &jsonWriter{buf: buffered, array: true}, nil
	case FormatJSONLines:
		return &jsonWriter{buf: buffered}, nil
	default:
		return newTable(w, opts.Color), nil
	}
}

type csvWriter struct {
	buf   *bufio.Writer
	rows  *csv.Writer
	wrote bool
}

func (w *csvWriter) header() error {
	if w.wrote {
		return nil
	}
	w.wrote = true
	if err := w.rows.Write([]string{"placeId", "name", "status", "url", "score", "venueId", "venue", "reason"}); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

func (w *csvWriter) Write(row Row) error {
	if err := w.header(); err != nil {
		return err
	}
	cells := []string{row.PlaceID, row.Name, row.Status, row.URL, score(row.Score), row.VenueID, row.Venue, row.Reason}
	if err := w.rows.Write(cells); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

func (w *csvWriter) Flush() error {
	w.rows.Flush()
	if err := w.rows.Error(); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return flush(w.buf)
}

func (w *csvWriter) Close() error {
	if err := w.header(); err != nil {
		return err
	}
	return w.Flush()
}

// jsonWriter writes an array, or lines.
type jsonWriter struct {
	array bool
	buf   *bufio.Writer
	wrote bool
}

func (w *jsonWriter) Write(row Row) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false) // URLs and names stay readable
	if err := enc.Encode(row.wire()); err != nil {
		return fmt.Errorf("output: place %q: %w", row.PlaceID, err)
	}
	text := line.Bytes()
	if w.array {
		before := ",\n  "
		if !w.wrote {
			before = "[\n  "
		}
		w.wrote = true
		text = append([]byte(before), bytes.TrimSuffix(text, []byte("\n"))...)
	}
	if _, err := w.buf.Write(text); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

func (w *jsonWriter) Flush() error { return flush(w.buf) }

func (w *jsonWriter) Close() error {
	end := ""
	switch {
	case w.array && w.wrote:
		end = "\n]\n"
	case w.array:
		end = "[]\n"
	}
	if _, err := w.buf.WriteString(end); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return flush(w.buf)
}

func flush(buf *bufio.Writer) error {
	if err := buf.Flush(); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

func score(value *float64) string {
	if value == nil {
		return ""
	}
	return strconv.FormatFloat(*value, 'f', 3, 64)
}
