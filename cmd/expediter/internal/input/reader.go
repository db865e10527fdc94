// Package input reads the places of a run from files of any size, in CSV, JSON or JSON Lines.
//
// It holds one record at a time, so that memory does not grow with the file. It also keeps the ids of the last
// places, up to a bound, to find duplicates. A record that cannot be used is reported with its file, line and fields,
// and does not stop the others.
package input

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Stdin is the path that stands for the standard input.
const Stdin = "-"

// Reader reads files. A Reader is for one goroutine.
type Reader struct {
	config Config
	report Report
}

// Report counts the records of the files read so far.
type Report struct {
	// Bad is the number of records that could not be used.
	Bad int

	// Places is the number of places that were yielded.
	Places int

	// Problems describes the first 100 bad records, in the order of the input.
	Problems []*RowError

	// Rows is the number of all records: Bad + Places.
	Rows int
}

// NewReader returns a reader.
func NewReader(cfg Config) *Reader {
	cfg.Format = cmp.Or(cfg.Format, FormatAuto)
	cfg.MaxRecordBytes = cmp.Or(cfg.MaxRecordBytes, contracts.MaxBody/4)
	if cfg.Stdin == nil {
		cfg.Stdin = os.Stdin
	}
	return &Reader{config: cfg}
}

// Report returns the counts so far. Call it after the loop over Files has ended.
func (r *Reader) Report() Report { return r.report }

// Files yields the places of the files in their order. The path "-" is the standard input.
//
// After an error the sequence ends: the file cannot be opened or read, breaks the rules of its format (ErrSyntax,
// ErrHeader, ErrRecordTooLarge), ctx has ended, or, in strict mode, a record is bad (*RowError). Bad records that do
// not affect others are left out and counted in the Report.
func (r *Reader) Files(ctx context.Context, paths ...string) iter.Seq2[Place, error] {
	return func(yield func(Place, error) bool) {
		out := &sink{config: r.config, report: &r.report, yield: yield}
		var base int64
		for _, path := range paths {
			size, err := r.file(ctx, path, base, out)
			if errors.Is(err, errStopped) {
				return
			}
			if err != nil {
				yield(Place{}, err)
				return
			}
			base += size
		}
	}
}

func (r *Reader) file(ctx context.Context, path string, base int64, out *sink) (int64, error) {
	if path == Stdin {
		return r.decode(newSource("stdin", decoded(Interruptible(ctx, r.config.Stdin)), base), "", out)
	}
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return 0, fmt.Errorf("input: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	return r.decode(newSource(path, decoded(file), base), path, out)
}

// decoded drops a byte order mark, and converts UTF-16 with a byte order mark to UTF-8.
func decoded(r io.Reader) io.Reader {
	return transform.NewReader(r, unicode.BOMOverride(encoding.Nop.NewDecoder()))
}

func (r *Reader) decode(src *source, path string, out *sink) (int64, error) {
	head, err := src.peek()
	if err != nil {
		return 0, err
	}
	format := r.config.Format
	if format == FormatAuto {
		format = detect(path, head)
	}
	switch format {
	case FormatJSON:
		err = readJSON(src, r.config.MaxRecordBytes, out)
	case FormatJSONLines:
		err = readJSONLines(src, r.config.MaxRecordBytes, out)
	default:
		err = readCSV(src, head, r.config.MaxRecordBytes, out)
	}
	return src.read, err
}

// Size returns the total number of bytes of the files, or 0 when it cannot be known, as for the standard input.
func Size(paths ...string) int64 {
	var total int64
	for _, path := range paths {
		info, err := os.Stat(path)
		if path == Stdin || err != nil || !info.Mode().IsRegular() {
			return 0
		}
		total += info.Size()
	}
	return total
}

// Config configures a [Reader].
type Config struct {
	// City is the city of places that name none. Defaults to none.
	City string

	// Format is the form of every file. Defaults to FormatAuto.
	Format Format

	// MaxRecordBytes is the size of the largest record, which bounds the memory that a broken file can take. Defaults
	// to 256 KiB, a quarter of contracts.MaxBody.
	MaxRecordBytes int

	// Stdin is read for the path "-". Defaults to os.Stdin.
	Stdin io.Reader
}

// Format is the form of an input file.
type Format string

// The formats that can be read.
const (
	// FormatAuto determines the format by the file's extension, then by its first bytes.
	FormatAuto Format = "auto"

	// FormatCSV is RFC 4180 with a header; comma, semicolon or tab.
	FormatCSV Format = "csv"

	// FormatJSON is an array of places, a request object with its places under "results", one place, or several of
	// these after each other.
	FormatJSON Format = "json"

	// FormatJSONLines is one place per line. A broken line does not affect the next one.
	FormatJSONLines Format = "jsonl"
)

// Formats lists all formats.
func Formats() []string {
	return []string{string(FormatAuto), string(FormatCSV), string(FormatJSON), string(FormatJSONLines)}
}

// detect returns the format of a file for FormatAuto.
func detect(path string, head []byte) Format {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".csv", ".tsv":
		return FormatCSV
	case ".json":
		return FormatJSON
	case ".jsonl", ".ndjson":
		return FormatJSONLines
	}
	if text := bytes.TrimLeft(head, " \t\r\n"); len(text) > 0 && (text[0] == '[' || text[0] == '{') {
		return FormatJSON
	}
	return FormatCSV
}

// source is one file being read. It bounds the bytes that a decoder may read for one record, and knows the line of each
// offset that the decoder has not passed yet.
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

// allow sets the bound for the record that starts at offset.
func (s *source) allow(offset int64, size int) { s.limit = offset + int64(size) }

// headBytes is the number of bytes of a file that are read to detect its format.
const headBytes = 4096

// peek returns the beginning of the file, which Read returns again.
func (s *source) peek() (head []byte, err error) {
	peeking := bufio.NewReaderSize(s.reader, headBytes)
	_, err = peeking.Peek(1)                   // fills the buffer by one read, and does not wait for more
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

// Interruptible returns a reader that gives up when ctx ends. A read of a terminal or a pipe cannot be interrupted,
// so its goroutine stays until the read returns. It uses no memory of the caller.
func Interruptible(ctx context.Context, r io.Reader) io.Reader {
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
		return 0, fmt.Errorf("input: not read to its end: %w", context.Cause(r.ctx))
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
		return 0, fmt.Errorf("input: not read to its end: %w", context.Cause(r.ctx))
	}
}
