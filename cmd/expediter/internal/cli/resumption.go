package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/expediter-io/expediter/cmd/expediter/internal/input"
)

// resumption is a file of results to go on with. The zero resumption is for a run of its own.
type resumption struct {
	file  *os.File
	lines *bufio.Reader // of the earlier rows
	rows  int           // how many there are
}

// openResumption opens the file of an earlier run, or makes it, and cuts off a line that was not written to its end.
func openResumption(path string) (*resumption, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // results are no secret, and the path is the caller's
	if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	r := &resumption{file: file}
	size := int64(0)
	for lines := bufio.NewReader(file); err == nil; {
		var n int
		if n, err = skipLine(lines); err == nil {
			size += int64(n)
			r.rows++
		}
	}
	if errors.Is(err, io.EOF) {
		err = file.Truncate(size)
	}
	if err == nil {
		_, err = file.Seek(size, io.SeekStart)
	}
	r.lines = bufio.NewReader(io.NewSectionReader(file, 0, size))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--resume %s: %w", path, err), file.Close())
	}
	return r, nil
}

// skipLine reads a whole line of any length, and returns how many bytes it has.
func skipLine(lines *bufio.Reader) (n int, err error) {
	for {
		part, err := lines.ReadSlice('\n')
		n += len(part)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return n, err //nolint:wrapcheck // the caller names the file
		}
	}
}

// skip leaves out the places that have a row. The rows have to be of the first places, in their order.
func (r *resumption) skip(places iter.Seq2[input.Place, error]) iter.Seq2[input.Place, error] {
	return func(yield func(input.Place, error) bool) {
		n := 0
		for place, err := range places {
			if n < r.rows && err == nil {
				n++
				if err = r.check(n, place); err == nil {
					continue
				}
			}
			if !yield(place, err) {
				return
			}
		}
	}
}

// check reports an error when the next row is not that of a place.
func (r *resumption) check(n int, place input.Place) error {
	line, err := r.lines.ReadBytes('\n')
	var row struct {
		PlaceID string `json:"placeId"`
	}
	if err == nil {
		err = json.Unmarshal(bytes.TrimSpace(line), &row)
	}
	if err != nil {
		return fmt.Errorf("--resume: line %d of %s is no result: %w", n, r.file.Name(), err)
	}
	if row.PlaceID != place.Restaurant.PlaceID {
		return fmt.Errorf("--resume: line %d of %s is about place %q, and %s about %q: it has the results of other input",
			n, r.file.Name(), row.PlaceID, place.Position, place.Restaurant.PlaceID)
	}
	return nil
}
