package input

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
)

// source is one file being read. It bounds how far a decoder may read for one record, and knows the line of each offset
// that the decoder has not passed yet.
type source struct {
	base     int64 // bytes of the files before this one
	limit    int64 // no byte at or after this offset is handed out
	line     int   // line of the last offset asked for, from 0
	lines    bool  // whether newlines are remembered
	name     string
	newlines []int64 // offsets of newlines after the last offset asked for
	read     int64
	reader   io.Reader
}

func newSource(name string, r io.Reader, base int64) *source {
	return &source{name: name, reader: r, base: base, limit: math.MaxInt64}
}

// allow moves the bound for the record that starts at offset.
func (s *source) allow(offset int64, size int) { s.limit = offset + int64(size) }

// headBytes is how much of a file is read to detect its format.
const headBytes = 4096

// peek returns the beginning of the file. It is read again by Read.
func (s *source) peek() (head []byte, err error) {
	peeking := bufio.NewReaderSize(s.reader, headBytes)
	_, err = peeking.Peek(1)                   // fills the buffer with what one read gives, and does not wait for more
	head, _ = peeking.Peek(peeking.Buffered()) //nolint:errcheck // no more than is there
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	s.reader = peeking
	return bytes.Clone(head), nil
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	room := s.limit - s.read
	if room <= 0 {
		return 0, ErrRecordTooLarge
	}
	n, err := s.reader.Read(p[:min(int64(len(p)), room)])
	if s.lines {
		for at, chunk := 0, p[:n]; ; {
			i := bytes.IndexByte(chunk[at:], '\n')
			if i < 0 {
				break
			}
			at += i + 1
			s.newlines = append(s.newlines, s.read+int64(at)-1)
		}
	}
	s.read += int64(n)
	return n, err //nolint:wrapcheck // an io.Reader passes errors on as they are
}

// position returns the line of an offset. Offsets must not decrease from call to call.
func (s *source) position(offset int64) Position {
	passed := 0
	for passed < len(s.newlines) && s.newlines[passed] < offset {
		passed++
	}
	s.line += passed
	s.newlines = append(s.newlines[:0], s.newlines[passed:]...)
	return Position{File: s.name, Line: s.line + 1}
}

func (s *source) at(line int) Position { return Position{File: s.name, Line: line} }

// interruptible returns a reader that gives up when ctx ends. A read of a terminal or a pipe cannot be broken off, so
// the goroutine that sits in it stays until that read returns; it touches nothing that the caller still uses.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	return &interruptibleReader{ctx: ctx, reader: r}
}

type interruptibleReader struct {
	ctx    context.Context //nolint:containedctx // io.Reader has no place for it
	reader io.Reader
}

type readResult struct {
	data []byte
	err  error
}

func (r *interruptibleReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, fmt.Errorf("input: reading stdin: %w", context.Cause(r.ctx))
	}
	done := make(chan readResult, 1)
	go func() {
		data := make([]byte, len(p))
		n, err := r.reader.Read(data)
		done <- readResult{data[:n], err}
	}()
	select {
	case got := <-done:
		return copy(p, got.data), got.err
	case <-r.ctx.Done():
		return 0, fmt.Errorf("input: reading stdin: %w", context.Cause(r.ctx))
	}
}
