package input

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// taker takes the values of a file: the places, or the documents. The index is the position of a value in its array, from 1, and 0 outside
// of one.
type taker interface {
	object(raw json.RawMessage, at Position, index int, end int64) error
	reject(problem *RowError) error
}

// jsonReader walks a JSON text without holding more than one value of it.
type jsonReader struct {
	dec       *json.Decoder
	maxRecord int
	out       taker
	src       *source
}

func newJSONReader(src *source, maxRecord int, out taker) *jsonReader {
	src.lines = true
	return &jsonReader{dec: json.NewDecoder(src), maxRecord: maxRecord, out: out, src: src}
}

// readJSON passes each value to out: the items of the array that is the whole file, the value of each line, or several values after each
// other. A value has no more than most bytes.
func readJSON(src *source, head []byte, path string, most int, out taker) error {
	text := bytes.TrimLeft(head, " \t\r\n")
	switch {
	case len(text) > 0 && text[0] == '[':
		return newJSONReader(src, most, out).items()
	case slices.Contains([]string{".jsonl", ".ndjson"}, strings.ToLower(filepath.Ext(path))), oneLine(text):
		return readJSONLines(src, most, out)
	}
	return newJSONReader(src, most, out).values()
}

// oneLine reports whether the first value ends with its line. Then a broken line does not affect later ones.
func oneLine(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return json.Valid(line)
}

// items reads the array that is the whole file.
func (r *jsonReader) items() error {
	if _, err := r.token(); err != nil {
		return r.failure(err)
	}
	for index := 1; ; index++ {
		r.src.allow(r.dec.InputOffset(), r.maxRecord)
		if !r.dec.More() {
			break
		}
		if err := r.value(index); err != nil {
			return err
		}
	}
	if _, err := r.token(); err != nil {
		return r.failure(err)
	}
	if _, err := r.token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w: there is more behind the array", r.here(), ErrSyntax)
	}
	return nil
}

// values reads a sequence of values.
func (r *jsonReader) values() error {
	for {
		if err := r.value(0); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (r *jsonReader) token() (json.Token, error) {
	r.src.allow(r.dec.InputOffset(), r.maxRecord)
	return r.dec.Token() //nolint:wrapcheck // wrapped by failure
}

// value passes one value on. Its error is io.EOF when there is none.
func (r *jsonReader) value(index int) error {
	r.src.allow(r.dec.InputOffset(), r.maxRecord)
	var raw json.RawMessage
	if err := r.dec.Decode(&raw); errors.Is(err, io.EOF) && index == 0 {
		return io.EOF
	} else if err != nil {
		return r.failure(err)
	}
	end := r.dec.InputOffset()
	return r.out.object(raw, r.src.position(end-int64(len(raw))), index, r.src.base+end)
}

func (r *jsonReader) here() Position { return r.src.position(r.dec.InputOffset()) }

// failure names the line of an error that ends the reading. The decoder's offsets have different origins, so failure
// scans the rest of the buffer once more.
func (r *jsonReader) failure(err error) error {
	if errors.Is(err, ErrRecordTooLarge) {
		return fmt.Errorf("%s: %w: more than %d bytes", r.here(), ErrRecordTooLarge, r.maxRecord)
	}
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s: %w", r.src.name, err)
	}
	offset := r.dec.InputOffset()
	rest, _ := io.ReadAll(r.dec.Buffered()) //nolint:errcheck // a bytes.Reader
	value := bytes.TrimLeft(rest, " \t\r\n,:")
	offset += int64(len(rest) - len(value))
	if again, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(value, new(json.RawMessage))); ok {
		offset += max(again.Offset-1, 0)
	}
	problem := "the text ends too early"
	if syntax != nil {
		problem = syntax.Error()
	}
	return fmt.Errorf("%s: %w: not valid JSON: %s", r.src.position(offset), ErrSyntax, problem)
}

// readJSONLines passes the value of each line to out. It skips lines that are too long without holding them.
func readJSONLines(src *source, maxRecord int, out taker) error {
	buffered := bufio.NewReaderSize(src, 64<<10)
	var line []byte
	var offset int64
	for number := 1; ; number++ {
		var consumed int
		var err error
		line, consumed, err = readLine(buffered, line[:0], maxRecord)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w", src.name, err)
		}
		offset += int64(consumed)
		if failed := jsonLine(src, line, consumed, number, offset, maxRecord, out); failed != nil {
			return failed
		}
		if err != nil {
			return nil //nolint:nilerr // the end of the file
		}
	}
}

func jsonLine(src *source, line []byte, consumed, number int, offset int64, maxRecord int, out taker) error {
	if consumed > len(line) {
		return out.reject(&RowError{Position: src.at(number), Fields: []FieldError{{
			Problem: fmt.Sprintf("the line is longer than %d bytes", maxRecord),
		}}})
	}
	trimmed := bytes.TrimSpace(line)
	if len(trimmed) == 0 {
		return nil
	}
	// The buffer is used again for the next line, but a value keeps its bytes.
	return out.object(bytes.Clone(trimmed), src.at(number), 0, src.base+offset)
}

// readLine appends the next line to line, up to most bytes of it, and returns the number of bytes that it consumed.
func readLine(r *bufio.Reader, line []byte, most int) ([]byte, int, error) {
	consumed := 0
	for {
		chunk, err := r.ReadSlice('\n')
		consumed += len(chunk)
		line = append(line, chunk[:min(len(chunk), most-min(len(line), most))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, consumed, err //nolint:wrapcheck // wrapped by the caller
		}
	}
}
