package input

import (
	"encoding/json"
	"errors"
	"fmt"
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
