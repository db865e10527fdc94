package input

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// errStopped ends the reading because the caller wants no more places.
var errStopped = errors.New("input: stopped by the caller")

// sink takes the records of the decoders, counts them in the report, and yields the valid places.
type sink struct {
	config Config
	report *Report
	yield  func(Place, error) bool
}

// fieldResults is the member of a request that has its places.
const fieldResults = "results"

// object checks and yields a place in JSON, or the places of a request, in which the request's city is that of places that name none.
func (s *sink) object(raw json.RawMessage, at Position, _ int, end int64) error {
	var request struct {
		City    string          `json:"cityText"`
		Results json.RawMessage `json:"results"`
	}
	var err error
	if bytes.Contains(raw, []byte(`"`+fieldResults+`"`)) {
		err = json.Unmarshal(raw, &request)
	}
	if request.Results == nil {
		return s.place(raw, at, s.config.City, end)
	}
	var places []json.RawMessage
	if err = errors.Join(err, json.Unmarshal(request.Results, &places)); err != nil {
		return s.reject(&RowError{Position: at, Fields: []FieldError{{
			Field: fieldResults, Problem: "must be an array of places, and " + fieldCity + " beside it a text",
		}}})
	}
	for _, place := range places {
		before := max(bytes.Index(raw, place), 0)
		at.Line += bytes.Count(raw[:before], []byte("\n"))
		raw = raw[before:]
		if err := s.place(place, at, cmp.Or(request.City, s.config.City), end); err != nil {
			return err
		}
	}
	return nil
}

// place checks a place in JSON, and yields it. city is the city of a place that names none.
func (s *sink) place(raw json.RawMessage, at Position, city string, end int64) error {
	if len(raw) > s.config.MaxRecordBytes {
		return s.reject(&RowError{Position: at, Fields: []FieldError{{Problem: fmt.Sprintf("has more than %d bytes", s.config.MaxRecordBytes)}}})
	}
	r, err := contracts.Decode[contracts.Restaurant](raw)
	if err == nil && r.CityText == "" {
		r.CityText = city
		err = r.Validate()
	}
	if err != nil {
		return s.reject(&RowError{Position: at, Fields: problemsOf(err)})
	}
	s.report.Rows++
	s.report.Places++
	if !s.yield(Place{Bytes: len(raw), Offset: end, Position: at, Restaurant: r}, nil) {
		return errStopped
	}
	return nil
}

// maxProblems is the number of problems that a Report describes. The others are only counted.
const maxProblems = 100

// reject counts a bad record. It never ends the reading.
func (s *sink) reject(problem *RowError) error {
	s.report.Rows++
	s.report.Bad++
	if len(s.report.Problems) < maxProblems {
		s.report.Problems = append(s.report.Problems, problem)
	}
	return nil
}

var (
	// ErrEncoding is returned when a value is not valid UTF-8. Files are in UTF-8, or in UTF-16 with a byte order mark;
	// other encodings have to be converted first.
	ErrEncoding = errors.New("input: not valid UTF-8")

	// ErrHeader is returned when the first line of a CSV file does not name the columns that every place needs.
	ErrHeader = errors.New("input: unusable header")

	// ErrRecordTooLarge is returned when one record is longer than Config.MaxRecordBytes, which in a CSV file usually
	// means a quote that is never closed.
	ErrRecordTooLarge = errors.New("input: record too large")

	// ErrSyntax is returned when a file breaks the rules of its format and no later record of it can be trusted.
	ErrSyntax = errors.New("input: syntax error")
)

// FieldError is a problem with one field of a record.
type FieldError struct {
	// Field is the wire name of the field, such as "placeId" or "location.lat"; empty when the record as a whole is at
	// fault.
	Field string

	// Problem describes the problem, with the value.
	Problem string
}

// String returns the field and its problem.
func (e FieldError) String() string {
	if e.Field == "" {
		return e.Problem
	}
	return e.Field + ": " + e.Problem
}

// RowError is returned for a record that cannot be used, with all its problems. Later records of the same file are not
// affected.
type RowError struct {
	// Fields holds one entry for each finding, in the order of the fields.
	Fields []FieldError

	// Position is the position at which the record starts.
	Position Position
}

// Error implements error. The text starts with file:line, so that editors can jump to it.
func (e *RowError) Error() string {
	findings := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		findings[i] = f.String()
	}
	return fmt.Sprintf("%s: %s", e.Position, strings.Join(findings, "; "))
}
