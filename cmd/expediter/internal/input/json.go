package input

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// fieldResults is the member of a request object that holds its places.
const fieldResults = "results"

// taker takes the values of a file: the places, or the documents.
type taker interface {
	object(raw json.RawMessage, at Position, city string, end int64) error
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

// readJSON passes each place to out. The file has any number of arrays of places, request objects and places.
func readJSON(src *source, maxRecord int, out taker) error {
	r := newJSONReader(src, maxRecord, out)
	for {
		tok, err := r.token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return r.failure(err)
		case tok == json.Delim('['):
			err = r.array("")
		case tok == json.Delim('{'):
			err = r.object()
		default:
			err = fmt.Errorf("%s: %w: want an array of places or a request object, got %v", r.here(), ErrSyntax, tok)
		}
		if err != nil {
			return err
		}
	}
}

func (r *jsonReader) token() (json.Token, error) {
	r.src.allow(r.dec.InputOffset(), r.maxRecord)
	return r.dec.Token() //nolint:wrapcheck // wrapped by failure
}

// value reads one value and returns where it starts.
func (r *jsonReader) value() (json.RawMessage, Position, error) {
	r.src.allow(r.dec.InputOffset(), r.maxRecord)
	var raw json.RawMessage
	if err := r.dec.Decode(&raw); err != nil {
		return nil, Position{}, r.failure(err)
	}
	return raw, r.src.position(r.dec.InputOffset() - int64(len(raw))), nil
}

// array reads values up to the closing bracket.
func (r *jsonReader) array(city string) error {
	for {
		r.src.allow(r.dec.InputOffset(), r.maxRecord)
		if !r.dec.More() {
			break
		}
		raw, at, err := r.value()
		if err != nil {
			return err
		}
		if err := r.out.object(raw, at, city, r.src.base+r.dec.InputOffset()); err != nil {
			return err
		}
	}
	if _, err := r.token(); err != nil {
		return r.failure(err)
	}
	return nil
}

// object reads a place, or a request object, whose places it passes on while it reads.
func (r *jsonReader) object() error {
	start := r.dec.InputOffset() - 1
	at := r.src.position(start)
	var fields []field
	request := false
	for r.dec.More() {
		tok, err := r.token()
		if err != nil {
			return r.failure(err)
		}
		name, _ := tok.(string)
		if name == fieldResults && !request {
			request = true
			if err := r.results(fields); err != nil {
				return err
			}
			continue
		}
		raw, where, err := r.value()
		if err != nil {
			return err
		}
		if request && (name == fieldCity || name == fieldResults) {
			err = r.out.reject(&RowError{Position: where, Fields: []FieldError{{
				Field: name, Problem: "comes after results and is not used; put it before them",
			}}})
		}
		if fields = append(fields, field{name, raw}); !request {
			err = r.bounded(start, at)
		}
		if err != nil {
			return err
		}
	}
	if _, err := r.token(); err != nil {
		return r.failure(err)
	}
	if request {
		return nil
	}
	return r.out.object(joinObject(fields), at, "", r.src.base+r.dec.InputOffset())
}

func (r *jsonReader) bounded(start int64, at Position) error {
	if r.dec.InputOffset()-start > int64(r.maxRecord) {
		return fmt.Errorf("%s: %w: more than %d bytes", at, ErrRecordTooLarge, r.maxRecord)
	}
	return nil
}

// results reads the places of a request. before has the members of the request before them.
func (r *jsonReader) results(before []field) error {
	tok, err := r.token()
	if err != nil {
		return r.failure(err)
	}
	if tok == nil {
		return nil
	}
	if tok != json.Delim('[') {
		return fmt.Errorf("%s: %w: %s: want an array of places, got %v", r.here(), ErrSyntax, fieldResults, tok)
	}
	city := ""
	for _, f := range before {
		if f.name != fieldCity || isNull(f.value) {
			continue
		}
		if err := json.Unmarshal(f.value, &city); err != nil {
			return fmt.Errorf("%s: %w: %s: want text, got %s", r.here(), ErrSyntax, fieldCity, excerpt(f.value))
		}
	}
	return r.array(city)
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

// field is a member of an object.
type field struct {
	name  string
	value json.RawMessage
}

func joinObject(fields []field) json.RawMessage {
	members := make([][]byte, len(fields))
	for i, f := range fields {
		name, _ := encode(f.name) //nolint:errcheck // a string
		members[i] = slices.Concat(name, []byte(":"), f.value)
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}"))
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
	return out.object(bytes.Clone(trimmed), src.at(number), "", src.base+offset)
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
