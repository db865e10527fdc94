package output

import (
	"errors"
	"fmt"
	"strings"
)

// ErrFormat is returned when an output format has no known name.
var ErrFormat = errors.New("output: unknown format")

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

// Formats lists the names that ParseFormat takes, for help texts and completion.
func Formats() []string {
	return []string{string(FormatTable), string(FormatJSON), string(FormatJSONLines), string(FormatCSV)}
}

// ParseFormat returns the format of that name, or ErrFormat. "ndjson" is another name for "jsonl".
func ParseFormat(name string) (Format, error) {
	switch strings.ToLower(name) {
	case "csv":
		return FormatCSV, nil
	case "json":
		return FormatJSON, nil
	case "jsonl", "ndjson":
		return FormatJSONLines, nil
	case "table":
		return FormatTable, nil
	}
	return "", fmt.Errorf("%w: %q: use one of %s", ErrFormat, name, strings.Join(Formats(), ", "))
}
