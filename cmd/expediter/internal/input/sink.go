package input

import (
	"crypto/sha256"
	"encoding/binary"
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
