// Package output writes the results of a run as a table, CSV, JSON or JSON Lines, row by row and in the order in which
// they are given, so that memory does not grow with their number.
package output

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
)

// Writer writes the rows of places. Close ends the output but does not close the underlying writer. Without Close the output is
// not complete. A Writer is for one goroutine.
type Writer interface {
	// Close writes what is still held and the end of the format.
	Close() error

	// Flush writes the rows so far to the underlying writer. A table holds its first rows back until their widths are
	// known.
	Flush() error

	// Write adds a row.
	Write(row Row) error
}

// New returns a writer of rows to w. color marks the statuses of a table with ANSI colours.
func New(w io.Writer, format Format, color bool) Writer {
	return places{NewRows(w, format, columns(format, color)...)}
}

// places writes rows of places.
type places struct{ *Rows }

// tableName is the largest width of a name, in terminal cells.
const tableName = 40

// columns returns the columns of a table, for a person, or of CSV. In a table the URL is last, because it is long: so a narrow
// terminal breaks no other column.
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

// Format is the form in which rows are written.
type Format string

// The formats that can be written.
const (
	// FormatCSV is RFC 4180 with a header and LF line ends.
	FormatCSV Format = "csv"

	// FormatJSON is one array of objects, written while the rows come.
	FormatJSON Format = "json"

	// FormatJSONLines is one object per line.
	FormatJSONLines Format = "jsonl"

	// FormatTable is for people: columns of equal width, long names cut, control characters replaced.
	FormatTable Format = "table"
)

// Formats lists all formats.
func Formats() []string {
	return []string{string(FormatTable), string(FormatJSON), string(FormatJSONLines), string(FormatCSV)}
}

// Row is the result for one place.
type Row struct {
	// Name is the place's name in the input.
	Name string

	// Place is the enriched place with every field that was passed through; left out of JSON when nil, and not part of
	// the other formats.
	Place json.RawMessage

	// PlaceID identifies the place.
	PlaceID string

	// Reason is the reason why a place is still pending, such as "ambiguous" or "timeout"; empty otherwise.
	Reason string

	// Score is the matcher's score, 0 to 1; nil when it is not known.
	Score *float64

	// Status is FOUND, NOT_FOUND or PENDING.
	Status string

	// URL is the place's page when Status is FOUND, empty otherwise.
	URL string

	// Venue is the provider's name for the place, or for the best candidate that was not taken; empty when it is not
	// known.
	Venue string

	// VenueID is the provider's own id of that venue; empty when it is not known.
	VenueID string
}

// wireRow is a row in JSON. It has every column, null when the value is unknown.
type wireRow struct {
	PlaceID string          `json:"placeId"`
	Name    string          `json:"name"`
	Status  string          `json:"status"`
	URL     *string         `json:"url"`
	Score   *float64        `json:"score"`
	VenueID *string         `json:"venueId"`
	Venue   *string         `json:"venue"`
	Reason  *string         `json:"reason"`
	Place   json.RawMessage `json:"place,omitempty"`
}

func (r Row) wire() wireRow {
	return wireRow{
		PlaceID: r.PlaceID, Name: r.Name, Status: r.Status, URL: orNull(r.URL), Score: r.Score,
		VenueID: orNull(r.VenueID), Venue: orNull(r.Venue), Reason: orNull(r.Reason), Place: r.Place,
	}
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Rows writes rows one by one. Each row is a JSON value, and the cells of a table or of CSV.
type Rows struct {
	csv    *csv.Writer
	failed error // of the first Add that failed
	format Format
	n      int
	out    io.Writer
	table  *table.Writer
}

// NewRows returns a writer to w. The names of the columns are the header of a table and of CSV.
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

// Format returns the format of the rows.
func (r *Rows) Format() Format { return r.format }

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

// Close writes the rows that are still held, and the end of the format. It does not close the underlying writer. After an Add
// that failed it only returns the error.
func (r *Rows) Close() error {
	switch {
	case r.failed != nil:
		return r.failed
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
