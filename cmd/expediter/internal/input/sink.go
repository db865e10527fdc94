package input

import (
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

// object checks a place in JSON, and yields it. city is the city of a place that names none.
func (s *sink) object(raw json.RawMessage, at Position, city string, end int64) error {
	r, err := contracts.Decode[contracts.Restaurant](raw)
	if err == nil && r.CityText == "" {
		r.CityText = cmp.Or(city, s.config.City)
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
