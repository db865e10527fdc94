package catalog

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// csvRows reads a header and the rows below it. The separator is the one of comma,
// semicolon and tab that the header has most of.
func csvRows(data []byte) (iter.Seq2[*row, error], error) {
	reader := csv.NewReader(bytes.NewReader(data))
	reader.Comma = separator(data)
	reader.FieldsPerRecord = -1 // Counted below, so that a bad row is one of many.
	reader.TrimLeadingSpace = true

	names, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("%w: the first line: %w", ErrFormat, err)
	}

	columns, err := header(names)
	if err != nil {
		return nil, err
	}
	return func(yield func(*row, error) bool) {
		for {
			record, err := reader.Read()
			if errors.Is(err, io.EOF) {
				return
			}

			if !yield(csvRow(reader, columns, record, err), nil) {
				return
			}
		}
	}, nil
}

func csvRow(reader *csv.Reader, columns []column, record []string, err error) *row {
	r := &row{fields: make(map[column]string)}

	if broken, ok := errors.AsType[*csv.ParseError](err); ok {
		r.line = broken.StartLine
		return r.refuse("it is not CSV: " + broken.Err.Error())
	}

	r.line, _ = reader.FieldPos(0)

	if len(record) != len(columns) {
		return r.refuse(fmt.Sprintf("it has %d columns, the first line has %d", len(record), len(columns)))
	}

	r.raw = []byte(strings.Join(record, "\x1f"))

	for i, value := range record {
		if columns[i] != "" {
			r.set(columns[i], value)
		}
	}
	return r
}

func separator(data []byte) rune {
	first, _, _ := bytes.Cut(data, []byte("\n"))
	best, most := ',', bytes.Count(first, []byte(","))

	for _, candidate := range ";\t" {
		if n := bytes.Count(first, []byte(string(candidate))); n > most {
			best, most = candidate, n
		}
	}
	return best
}
