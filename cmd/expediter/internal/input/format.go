package input

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
)

// Format is the form of an input file.
type Format string

// The formats that can be read.
const (
	// FormatAuto goes by the file's extension, then by its first bytes.
	FormatAuto Format = "auto"

	// FormatCSV is RFC 4180 with a header; comma, semicolon or tab.
	FormatCSV Format = "csv"

	// FormatJSON is an array of places, a request object with its places under "results", one place, or several of
	// these after each other.
	FormatJSON Format = "json"

	// FormatJSONLines is one place per line. A broken line does not affect the next one.
	FormatJSONLines Format = "jsonl"
)

// Formats lists the names that ParseFormat takes, for help texts and completion.
func Formats() []string {
	return []string{string(FormatAuto), string(FormatCSV), string(FormatJSON), string(FormatJSONLines)}
}

// ParseFormat returns the format of that name, or ErrFormat. The empty name is FormatAuto; "ndjson" and "tsv" are
// accepted as other names for "jsonl" and "csv".
func ParseFormat(name string) (Format, error) {
	switch strings.ToLower(name) {
	case "", "auto":
		return FormatAuto, nil
	case "csv", "tsv":
		return FormatCSV, nil
	case "json":
		return FormatJSON, nil
	case "jsonl", "ndjson":
		return FormatJSONLines, nil
	}
	return "", fmt.Errorf("%w: %q: use one of %s", ErrFormat, name, strings.Join(Formats(), ", "))
}

// detect decides on a format that was left open.
func detect(path string, head []byte) Format {
	ext := strings.TrimPrefix(filepath.Ext(path), ".")
	if format, err := ParseFormat(ext); err == nil && ext != "" && format != FormatAuto {
		return format
	}
	if text := bytes.TrimLeft(head, " \t\r\n"); len(text) > 0 && (text[0] == '[' || text[0] == '{') {
		return FormatJSON
	}
	return FormatCSV
}
