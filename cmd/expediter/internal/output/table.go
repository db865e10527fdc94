package output

import (
	"io"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
)

// tableName is the most terminal cells that a name takes.
const tableName = 40

// tableWriter shows rows to a person. The URL comes last: it is long, and a terminal that is not wide enough breaks no
// other column.
type tableWriter struct{ *table.Writer }

func newTable(w io.Writer, color bool) tableWriter {
	var colors map[string]string
	if color {
		colors = map[string]string{"FOUND": "\x1b[32m", "NOT_FOUND": "\x1b[33m", "PENDING": "\x1b[36m"}
	}
	return tableWriter{table.New(w,
		table.Column{Name: "PLACE ID"},
		table.Column{Name: "NAME", Width: tableName},
		table.Column{Name: "STATUS", Colors: colors},
		table.Column{Name: "REASON"},
		table.Column{Name: "SCORE", Optional: true},
		table.Column{Name: "VENUE", Width: tableName, Optional: true},
		table.Column{Name: "URL"},
	)}
}

func (w tableWriter) Write(row Row) error {
	venue := row.Venue
	if venue == "" {
		venue = row.VenueID
	}
	return w.Writer.Write(row.PlaceID, row.Name, row.Status, row.Reason, score(row.Score), venue, row.URL)
}
