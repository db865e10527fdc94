// Package output writes the results of a run as a table, CSV, JSON or JSON Lines, row by row and in the order in which
// they are given, so that memory does not grow with their number.
package output

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
)

// Writer writes the rows of places. Close ends the output but does not close what it writes to; without a Close the output is not
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
	format, err := ParseFormat(string(cmp.Or(opts.Format, FormatTable)))
	if err != nil {
		return nil, err
	}
	return places{NewRows(w, format, columns(format, opts.Color)...)}, nil
}

// places writes rows of places.
type places struct{ *Rows }

// tableName is the most terminal cells that a name takes.
const tableName = 40

// columns are those of a table, for a person, or those of CSV. In a table the URL comes last: it is long, and a terminal that is
// not wide enough breaks no other column.
func columns(format Format, color bool) []table.Column {
	if format == FormatCSV {
		return []table.Column{
			{Name: "placeId"},
			{Name: "name"},
			{Name: "status"},
			{Name: "url"},
			{Name: "score"},
			{Name: "venueId"},
			{Name: "venue"},
			{Name: "reason"},
		}
	}
	var colors map[string]string
	if color {
		colors = map[string]string{"FOUND": "\x1b[32m", "NOT_FOUND": "\x1b[33m", "PENDING": "\x1b[36m"}
	}
	return []table.Column{
		{Name: "PLACE ID"},
		{Name: "NAME", Width: tableName},
		{Name: "STATUS", Colors: colors},
		{Name: "REASON"},
		{Name: "SCORE", Optional: true},
		{Name: "VENUE", Width: tableName, Optional: true},
		{Name: "URL"},
	}
}

// Write implements Writer.
func (w places) Write(row Row) error {
	score := ""
	if row.Score != nil {
		score = strconv.FormatFloat(*row.Score, 'f', 3, 64)
	}
	cells := []string{row.PlaceID, row.Name, row.Status, row.Reason, score, cmp.Or(row.Venue, row.VenueID), row.URL}
	if w.Format() == FormatCSV {
		cells = []string{row.PlaceID, row.Name, row.Status, row.URL, score, row.VenueID, row.Venue, row.Reason}
	}
	if err := w.Rows.Write(row.wire(), cells...); err != nil {
		return fmt.Errorf("output: place %q: %w", row.PlaceID, err)
	}
	return nil
}
