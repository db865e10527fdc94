package input

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// errStopped ends the reading because the caller wants no more places.
var errStopped = errors.New("input: stopped by the caller")

// sink takes the records from the decoders, keeps the report, and yields the valid places.
type sink struct {
	config Config
	report *Report
	seen   *seen
	yield  func(Place, error) bool
}

// object takes a place in JSON.
func (s *sink) object(raw json.RawMessage, at Position, city string, end int64) error {
	if !utf8.Valid(raw) {
		return s.reject(&RowError{Position: at, Fields: []FieldError{{Problem: "not valid UTF-8; save the file as UTF-8"}}})
	}
	fields, err := parseObject(raw)
	if err != nil {
		return s.reject(&RowError{Position: at, Fields: []FieldError{{Problem: err.Error()}}})
	}
	return s.accept(record{city: city, end: end, fields: fields, position: at, raw: raw})
}

// accept checks a record and yields its place.
func (s *sink) accept(rec record) error {
	if rec.city == "" {
		rec.city = s.config.City
	}
	place, problem := rec.place()
	if problem != nil {
		return s.reject(problem)
	}
	if first, known, equal := s.seen.add(place); known && equal {
		s.report.Rows++
		s.report.Duplicates++
		return nil
	} else if known {
		return s.reject(&RowError{Position: place.Position, Fields: []FieldError{{
			Field: fieldID, Problem: fmt.Sprintf("%s was given before at %s with other content", excerpt(quote(place.Restaurant.PlaceID)), first),
		}}})
	}
	s.report.Rows++
	s.report.Places++
	if !s.yield(place, nil) {
		return errStopped
	}
	return nil
}

// reject counts a bad record. In strict mode it is the end.
func (s *sink) reject(problem *RowError) error {
	s.report.Rows++
	s.report.Bad++
	if len(s.report.Problems) < s.config.MaxProblems {
		s.report.Problems = append(s.report.Problems, problem)
	}
	if s.config.Strict {
		return problem
	}
	return nil
}

// seen remembers the last ids in two generations of equal size, so that its memory is bounded: when the younger one is
// full it becomes the older one, and the older one is forgotten.
type seen struct {
	files      []string
	most       int // per generation
	old, young map[[16]byte]sighting
}

type sighting struct {
	content uint64
	file    int
	line    int
}

func newSeen(most int) *seen {
	return &seen{most: max(most/2, 1), young: make(map[[16]byte]sighting)}
}

// add remembers the place. When its id is known, it returns where it was first seen and whether the content is equal.
func (s *seen) add(p Place) (first Position, known, equal bool) {
	key := [16]byte(hash(p.Restaurant.PlaceID))
	content := binary.BigEndian.Uint64(hash(string(p.Body)))
	earlier, known := s.young[key]
	if !known {
		earlier, known = s.old[key]
	}
	if known {
		return Position{File: s.files[earlier.file], Line: earlier.line}, true, earlier.content == content
	}
	if len(s.young) >= s.most {
		s.old, s.young = s.young, make(map[[16]byte]sighting, s.most)
	}
	if len(s.files) == 0 || s.files[len(s.files)-1] != p.Position.File {
		s.files = append(s.files, p.Position.File)
	}
	s.young[key] = sighting{content: content, file: len(s.files) - 1, line: p.Position.Line}
	return Position{}, false, false
}

func hash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:16]
}

var (
	// ErrEncoding is returned when a value is not valid UTF-8. Files in UTF-8, and in UTF-16 with a byte order mark, are
	// read; anything else has to be converted first.
	ErrEncoding = errors.New("input: not valid UTF-8")

	// ErrFormat is returned when a format has no known name.
	ErrFormat = errors.New("input: unknown format")

	// ErrHeader is returned when the first line of a CSV file does not name the columns that every place needs.
	ErrHeader = errors.New("input: unusable header")

	// ErrRecordTooLarge is returned when one record is longer than Config.MaxRecordBytes, which in a CSV file mostly
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

	// Problem is the finding in plain words, with the value that was met.
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

	// Position is where the record starts.
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
