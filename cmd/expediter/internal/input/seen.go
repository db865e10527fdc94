package input

import (
	"crypto/sha256"
	"encoding/binary"
)

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
