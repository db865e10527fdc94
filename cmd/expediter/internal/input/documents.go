package input

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Document is one JSON value of a file.
type Document struct {
	// Body is the value. In a file with a value in each line it is the line, whatever that holds.
	Body []byte

	// Index is which value of an array it is, from 1; 0 for one that is in none.
	Index int

	// Offset is how many bytes of the file had been consumed when the value had been read.
	Offset int64

	// Position is where the value begins.
	Position Position
}

// Where says file:line, and which value of an array it is.
func (d Document) Where() string {
	if d.Index == 0 {
		return d.Position.String()
	}
	return fmt.Sprintf("%s (item %d)", d.Position, d.Index)
}

// Documents yields the JSON values of a file: the items of an array, one in each line, or several after each other. It holds
// one at a time, and most is how many bytes it may have. The path "-" is stdin.
//
// A [*RowError] is about one line that is too long, and others follow. Every other error is the last thing that it yields:
// the file cannot be opened or read, it is not JSON (ErrSyntax, ErrRecordTooLarge), or ctx has ended.
func Documents(ctx context.Context, path string, stdin io.Reader, most int) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		reader, name := interruptible(ctx, stdin), "stdin"
		if path != Stdin {
			file, err := os.Open(path) //nolint:gosec // the operator names the file
			if err != nil {
				yield(Document{}, err)
				return
			}
			defer file.Close() //nolint:errcheck // only read
			reader, name = file, path
		}
		d := documents{ctx: ctx, most: most, src: newSource(name, reader, 0), yield: yield}
		if err := d.read(path); err != nil && !errors.Is(err, errStopped) {
			yield(Document{}, err)
		}
	}
}

// documents reads one file.
type documents struct {
	ctx   context.Context //nolint:containedctx // the life of one iteration
	most  int
	src   *source
	yield func(Document, error) bool
}

func (d *documents) read(path string) error {
	peeking := bufio.NewReaderSize(decoded(d.src.reader), headBytes)
	_, err := peeking.Peek(1)                   // fills the buffer with what one read gives, and does not wait for more
	head, _ := peeking.Peek(peeking.Buffered()) //nolint:errcheck // no more than is there
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", d.src.name, err)
	}
	d.src.reader = peeking
	text := bytes.TrimLeft(head, " \t\r\n")
	switch {
	case len(text) > 0 && text[0] == '[':
		return d.array()
	case slices.Contains([]string{".jsonl", ".ndjson"}, strings.ToLower(filepath.Ext(path))), oneLine(text):
		return d.lines()
	}
	return d.values()
}

// oneLine reports whether the first value ends with its line: then one that is broken does not affect the next ones.
func oneLine(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return json.Valid(line)
}

func (d *documents) tell(doc Document, err error) error {
	if d.ctx.Err() != nil {
		return fmt.Errorf("%s: %w", d.src.name, context.Cause(d.ctx))
	}
	if !d.yield(doc, err) {
		return errStopped
	}
	return nil
}

func (d *documents) lines() error {
	buffered := bufio.NewReaderSize(d.src, 64<<10)
	var offset int64
	for number := 1; ; number++ {
		line, consumed, readErr := readLine(buffered, nil, d.most)
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			return fmt.Errorf("%s: %w", d.src.name, readErr)
		}
		offset += int64(consumed)
		doc := Document{Body: bytes.TrimSpace(line), Offset: offset, Position: d.src.at(number)}
		var err error
		switch {
		case consumed > len(line):
			err = d.tell(doc, &RowError{Position: doc.Position, Fields: []FieldError{{
				Problem: fmt.Sprintf("the line is longer than %d bytes", d.most),
			}}})
		case len(doc.Body) > 0:
			err = d.tell(doc, nil)
		}
		if err != nil {
			return err
		}
		if readErr != nil {
			return nil //nolint:nilerr // the end of the file
		}
	}
}

func (d *documents) array() error {
	d.src.lines = true
	r := &jsonReader{dec: json.NewDecoder(d.src), maxRecord: d.most, src: d.src}
	if _, err := r.token(); err != nil {
		return r.failure(err)
	}
	for index := 1; ; index++ {
		d.src.allow(r.dec.InputOffset(), d.most)
		if !r.dec.More() {
			break
		}
		raw, at, err := r.value()
		if err != nil {
			return err
		}
		if err := d.tell(Document{Body: raw, Index: index, Offset: r.dec.InputOffset(), Position: at}, nil); err != nil {
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

func (d *documents) values() error {
	d.src.lines = true
	r := &jsonReader{dec: json.NewDecoder(d.src), maxRecord: d.most, src: d.src}
	for {
		raw, at, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := d.tell(Document{Body: raw, Offset: r.dec.InputOffset(), Position: at}, nil); err != nil {
			return err
		}
	}
}

// next is value at the top, where the text may end.
func (r *jsonReader) next() (json.RawMessage, Position, error) {
	r.src.allow(r.dec.InputOffset(), r.maxRecord)
	var raw json.RawMessage
	if err := r.dec.Decode(&raw); errors.Is(err, io.EOF) {
		return nil, Position{}, io.EOF
	} else if err != nil {
		return nil, Position{}, r.failure(err)
	}
	return raw, r.src.position(r.dec.InputOffset() - int64(len(raw))), nil
}
