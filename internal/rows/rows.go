// Package rows reads the records of a file one by one: JSON, JSON Lines, or CSV with a header. Every record comes as JSON, so callers
// decode one form. It holds one record at a time, and a broken one does not stop the others where its format has an end for it.
package rows

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Stdin is the path of the standard input.
const Stdin = "-"

// Record is one record of a file.
type Record struct {
	// Body is the value. A line of JSON Lines is not checked. A row of CSV is an object of its cells that are not empty, by their columns.
	Body []byte

	// CSV reports whether the record is a row of CSV, so all values are strings.
	CSV bool

	// File and Line are the position of the record. Index is its position in an array of JSON, from 1, and 0 elsewhere.
	File  string
	Line  int
	Index int
}

// Where returns file:line, so that editors can jump to it, and the index in an array.
func (r Record) Where() string {
	if r.Index == 0 {
		return fmt.Sprintf("%s:%d", r.File, r.Line)
	}
	return fmt.Sprintf("%s:%d (item %d)", r.File, r.Line, r.Index)
}

// Error is one record that cannot be read. Others follow.
type Error struct {
	Record // without a body

	Problem string
}

// Error implements error.
func (e *Error) Error() string { return e.Where() + ": " + e.Problem }

var (
	// ErrFormat is returned when a file is not what it seems to be, and nothing after that can be read.
	ErrFormat = errors.New("it cannot be read")

	// ErrTooLarge is returned when a record is larger than permitted. In CSV this is usually a quote that is never closed.
	ErrTooLarge = errors.New("a record is too large")

	errStopped = errors.New("stopped by the caller")
)

// Options configure a read.
type Options struct {
	// MaxBytes bounds a record. Required.
	MaxBytes int

	// Columns are those that a CSV file must have. Without any, a file is never CSV.
	Columns []string
}

// Open yields the records of a file. The path "-" is stdin, whose reads end with ctx. After an
// error that is not an [*Error], the sequence ends.
func Open(ctx context.Context, path string, stdin io.Reader, o Options) iter.Seq2[Record, error] {
	if path == Stdin {
		return Read(ctx, "stdin", Interruptible(ctx, stdin), o)
	}
	return func(yield func(Record, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer file.Close()
		Read(ctx, path, file, o)(yield)
	}
}

// Read is Open for a reader of a file of that name. JSON is an array, or values after each other;
// where the first line is a value by itself, or the name ends in .jsonl or .ndjson, each line is
// one.
func Read(ctx context.Context, name string, r io.Reader, o Options) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		in := &source{limit: math.MaxInt64, reader: bufio.NewReaderSize(r, 64<<10)}
		f := &file{Options: o, ctx: ctx, in: in, name: name, yield: yield}
		if err := f.read(); err != nil && !errors.Is(err, errStopped) {
			yield(Record{}, err)
		}
	}
}

// file is a file that is being read.
type file struct {
	Options

	ctx   context.Context
	in    *source
	name  string
	yield func(Record, error) bool
}

func (f *file) read() error {
	head, err := f.in.peek()
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	if bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff")) {
		return fmt.Errorf("%s: %w: it is UTF-16: save it as UTF-8", f.name, ErrFormat)
	}
	if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
		head = head[3:]
		if _, err := f.in.reader.Discard(3); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	text := bytes.TrimLeft(head, " \t\r\n")
	line, _, _ := bytes.Cut(text, []byte("\n"))
	switch {
	case len(text) > 0 && text[0] == '[':
		return f.array()
	case len(text) > 0 && text[0] != '{' && f.Columns != nil:
		return f.rows(line)
	case slices.Contains([]string{".jsonl", ".ndjson"}, strings.ToLower(filepath.Ext(f.name))), json.Valid(line):
		return f.lines()
	}
	return f.values()
}

func (f *file) tell(r Record, problem string) error {
	if f.ctx.Err() != nil {
		return fmt.Errorf("%s: %w", f.name, context.Cause(f.ctx))
	}
	r.File = f.name
	var err error
	if problem != "" {
		err = &Error{Record: r, Problem: problem}
	}
	if !f.yield(r, err) {
		return errStopped
	}
	return nil
}

func (f *file) array() error {
	dec := f.decoder()
	if _, err := dec.Token(); err != nil {
		return f.failure(dec, err)
	}
	for i := 1; ; i++ {
		f.in.allow(dec.InputOffset(), f.MaxBytes)
		if !dec.More() {
			break
		}
		if err := f.value(dec, i); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return f.failure(dec, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s:%d: %w: something follows the array", f.name, f.in.lineOf(dec.InputOffset()), ErrFormat)
	}
	return nil
}

func (f *file) values() error {
	for dec := f.decoder(); ; {
		f.in.allow(dec.InputOffset(), f.MaxBytes)
		if err := f.value(dec, 0); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (f *file) decoder() *json.Decoder {
	f.in.remember = true
	return json.NewDecoder(f.in)
}

func (f *file) value(dec *json.Decoder, index int) error {
	var raw json.RawMessage
	if err := dec.Decode(&raw); errors.Is(err, io.EOF) && index == 0 {
		return err
	} else if err != nil {
		return f.failure(dec, err)
	}
	return f.tell(Record{Body: raw, Index: index, Line: f.in.lineOf(dec.InputOffset() - int64(len(raw)))}, "")
}

// failure names the line of an error that ends the reading: that of the value after the last one.
func (f *file) failure(dec *json.Decoder, err error) error {
	rest, _ := io.ReadAll(dec.Buffered()) // a bytes.Reader
	skipped := len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,"))
	line := f.in.lineOf(dec.InputOffset() + int64(skipped))
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, ErrTooLarge):
		return fmt.Errorf("%s:%d: %w: more than %d bytes", f.name, line, ErrTooLarge, f.MaxBytes)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s:%d: %w: the JSON ends too early", f.name, line, ErrFormat)
	case errors.As(err, &syntax):
		return fmt.Errorf("%s:%d: %w: not valid JSON: %w", f.name, line, ErrFormat, err)
	}
	return fmt.Errorf("%s: %w", f.name, err)
}

// lines reads JSON Lines. It skips lines that are too long without holding them.
func (f *file) lines() error {
	var line []byte
	for number := 1; ; number++ {
		line = line[:0]
		long := false
		for {
			chunk, err := f.in.reader.ReadSlice('\n')
			if long = long || len(line)+len(chunk) > f.MaxBytes+1; !long {
				line = append(line, chunk...)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			if told := f.line(line, number, long); told != nil || err != nil {
				return told
			}
			break
		}
	}
}

func (f *file) line(line []byte, number int, long bool) error {
	at := Record{Line: number}
	if long {
		return f.tell(at, fmt.Sprintf("the line is longer than %d bytes", f.MaxBytes))
	}
	if at.Body = bytes.Clone(bytes.TrimSpace(line)); len(at.Body) == 0 {
		return nil
	}
	return f.tell(at, "")
}

// rows reads CSV. The header says what separates the cells.
func (f *file) rows(head []byte) error {
	f.in.remember = true
	r := csv.NewReader(bufio.NewReader(f.in))
	if i := bytes.IndexAny(head, ",;\t"); i >= 0 {
		r.Comma = rune(head[i])
	}
	r.FieldsPerRecord = -1 // a row with another number of cells does not stop the others
	f.in.allow(0, f.MaxBytes)
	header, err := r.Read()
	if err == nil {
		err = f.check(header)
	}
	if err != nil {
		return fmt.Errorf("%s:1: %w: the header: %w", f.name, ErrFormat, err)
	}
	for {
		f.in.allow(r.InputOffset(), f.MaxBytes)
		at := Record{CSV: true, Line: f.in.lineOf(r.InputOffset())}
		cells, err := r.Read()
		var problem string
		var syntax *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, ErrTooLarge):
			return fmt.Errorf("%s:%d: %w: more than %d bytes: is a quote left open?", f.name, at.Line, err, f.MaxBytes)
		case errors.As(err, &syntax):
			at.Line, problem = syntax.StartLine, "it is not CSV: "+syntax.Err.Error()
		case err != nil:
			return fmt.Errorf("%s: %w", f.name, err)
		default:
			at.Line, _ = r.FieldPos(0)
			at.Body, problem = object(header, cells)
		}
		if err := f.tell(at, problem); err != nil {
			return err
		}
	}
}

// check returns an error when the header lacks a column, or names one twice.
func (f *file) check(header []string) error {
	for i, name := range header {
		if problem := mistake(name); problem != "" {
			return fmt.Errorf("the column %.80q %s", name, problem)
		}
		if name != "" && slices.Contains(header[:i], name) {
			return fmt.Errorf("it names the column %q twice", name)
		}
	}
	for _, want := range f.Columns {
		if !slices.Contains(header, want) {
			return fmt.Errorf("it has no column %s: it reads %.200q", want, strings.Join(header, ","))
		}
	}
	return nil
}

// mistake returns what is wrong with a cell, "" for nothing. The reader takes a carriage return for a part of a cell.
func mistake(cell string) string {
	switch {
	case !utf8.ValidString(cell):
		return "is not UTF-8"
	case strings.Contains(cell, "\r"):
		return "has a carriage return without a line feed: end the lines with both, or with line feeds"
	}
	return ""
}

// object returns the row as a JSON object, or the reason why it is none.
func object(header, cells []string) (body []byte, problem string) {
	if len(cells) != len(header) {
		return nil, fmt.Sprintf("it has %d columns, the header has %d", len(cells), len(header))
	}
	values := make(map[string]string, len(cells))
	for i, cell := range cells {
		if problem := mistake(cell); problem != "" {
			return nil, "the " + header[i] + " " + problem
		}
		if cell = strings.TrimSpace(cell); cell != "" {
			values[header[i]] = cell
		}
	}
	body, err := json.Marshal(values)
	if err != nil {
		return nil, err.Error()
	}
	return body, ""
}

// source bounds the bytes that a decoder may read for one record, and finds the line of an offset.
type source struct {
	limit, read int64 // no byte at limit or after it is handed out
	line        int   // newlines before the last offset that was asked for
	newlines    []int64
	reader      *bufio.Reader
	remember    bool // the offsets of newlines
}

// allow sets the bound for the record that starts at offset. Decoders read ahead, by a buffer at most.
func (s *source) allow(offset int64, size int) { s.limit = offset + int64(size) + 4096 }

// peek returns the beginning of the file: a byte order mark at least, and what arrived with it.
func (s *source) peek() ([]byte, error) {
	if _, err := s.reader.Peek(3); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return s.reader.Peek(s.reader.Buffered())
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	room := s.limit - s.read
	if room <= 0 {
		return 0, ErrTooLarge
	}
	n, err := s.reader.Read(p[:min(int64(len(p)), room)])
	for i, b := range p[:n] {
		if b == '\n' && s.remember {
			s.newlines = append(s.newlines, s.read+int64(i))
		}
	}
	s.read += int64(n)
	return n, err
}

// lineOf returns the line of an offset. Offsets must not decrease from call to call.
func (s *source) lineOf(offset int64) int {
	passed := 0
	for passed < len(s.newlines) && s.newlines[passed] < offset {
		passed++
	}
	s.line += passed
	s.newlines = append(s.newlines[:0], s.newlines[passed:]...)
	return s.line + 1
}

// Interruptible returns a reader that gives up when ctx ends. A read of a terminal or a pipe cannot be interrupted, so its goroutine stays
// until the read returns. It uses no memory of the caller.
func Interruptible(ctx context.Context, r io.Reader) io.Reader {
	return &interruptible{ctx: ctx, reader: r}
}

type interruptible struct {
	ctx    context.Context
	reader io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	if r.ctx.Err() == nil {
		go func() {
			data := make([]byte, len(p))
			n, err := r.reader.Read(data)
			done <- result{data[:n], err}
		}()
	}
	select {
	case got := <-done:
		return copy(p, got.data), got.err
	case <-r.ctx.Done():
		return 0, fmt.Errorf("it was not read to its end: %w", context.Cause(r.ctx))
	}
}
