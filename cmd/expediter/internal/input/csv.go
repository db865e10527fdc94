package input

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// readCSV passes each record after the header to out. It ends at the first error that makes later records doubtful.
func readCSV(src *source, head []byte, maxRecord int, out *sink) error {
	// The csv package uses a buffer of its own unless the reader has a buffer that is large enough.
	rows := csv.NewReader(bufio.NewReaderSize(src, headBytes))
	rows.Comma = delimiter(head)
	rows.FieldsPerRecord = -1
	src.lines = true
	src.allow(0, maxRecord+headBytes)
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil // an empty file has no places
	}
	if err != nil {
		return csvFailure(src, src.position(0), err)
	}
	header = append([]string(nil), header...)
	known, err := checkHeader(src, header)
	if err != nil {
		return err
	}
	rows.ReuseRecord = true
	for {
		start := src.position(rows.InputOffset())
		src.allow(rows.InputOffset(), maxRecord+headBytes)
		cells, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var syntax *csv.ParseError
		switch {
		case errors.As(err, &syntax) && !errors.Is(err, ErrRecordTooLarge):
			err = out.reject(&RowError{Position: src.at(syntax.StartLine), Fields: []FieldError{{Problem: csvProblem(syntax)}}})
		case err != nil:
			err = csvFailure(src, start, err)
		default:
			err = csvRow(src, rows, header, cells, known, out)
		}
		if err != nil {
			return err
		}
	}
}

func csvRow(src *source, rows *csv.Reader, header, cells []string, known map[string]int, out *sink) error {
	line, _ := rows.FieldPos(0)
	at := src.at(line)
	if len(cells) != len(header) {
		return out.reject(&RowError{Position: at, Fields: []FieldError{{
			Problem: fmt.Sprintf("has %d fields, the header has %d", len(cells), len(header)),
		}}})
	}
	body, err := encodeRow(header, cells, known)
	if err != nil {
		return out.reject(&RowError{Position: at, Fields: []FieldError{{Problem: err.Error()}}})
	}
	return out.object(body, at, "", src.base+rows.InputOffset())
}

// checkHeader returns the columns of the known fields.
func checkHeader(src *source, header []string) (map[string]int, error) {
	names := make(map[string]bool, len(header))
	for _, name := range header {
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf("%s: %w: save the file as UTF-8", src.at(1), ErrEncoding)
		}
		if name != "" && names[name] {
			return nil, fmt.Errorf("%s: %w: the column %s is given twice", src.at(1), ErrHeader, excerpt([]byte(name)))
		}
		names[name] = true
	}
	known := columnsOf(header)
	for _, want := range []struct{ field, names string }{{fieldID, "id, placeId or place_id"}, {fieldName, "name"}} {
		if _, ok := known[want.field]; !ok {
			return nil, fmt.Errorf("%s: %w: no column is named %s; the first line has to name the columns, it reads %s",
				src.at(1), ErrHeader, want.names, excerpt([]byte(strings.Join(header, ","))))
		}
	}
	return known, nil
}

func csvProblem(syntax *csv.ParseError) string {
	switch {
	case errors.Is(syntax.Err, csv.ErrBareQuote):
		return fmt.Sprintf("a quote inside an unquoted field, at column %d", syntax.Column)
	case errors.Is(syntax.Err, csv.ErrQuote) && syntax.Line > syntax.StartLine:
		return fmt.Sprintf("a quoted field that does not end properly; lines %d to %d are left out", syntax.StartLine, syntax.Line)
	case errors.Is(syntax.Err, csv.ErrQuote):
		return fmt.Sprintf("a quoted field that does not end properly, at column %d", syntax.Column)
	}
	return syntax.Err.Error()
}

func csvFailure(src *source, start Position, err error) error {
	var syntax *csv.ParseError
	switch {
	case errors.Is(err, ErrRecordTooLarge):
		return fmt.Errorf("%s: %w: the record that starts here does not end in time; is a quote left open?", start, ErrRecordTooLarge)
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: %w: %s", src.at(syntax.StartLine), ErrSyntax, csvProblem(syntax))
	}
	return fmt.Errorf("%s: %w", src.name, err)
}

// delimiter returns the separator that occurs most often in the first line, outside quotes.
func delimiter(head []byte) rune {
	counts := map[rune]int{',': 0, ';': 0, '\t': 0}
	quoted := false
	for _, r := range string(head) {
		if r == '"' {
			quoted = !quoted
		}
		if r == '\n' && !quoted {
			break
		}
		if _, ok := counts[r]; ok && !quoted {
			counts[r]++
		}
	}
	best := ','
	for _, r := range []rune{';', '\t'} {
		if counts[r] > counts[best] {
			best = r
		}
	}
	return best
}
