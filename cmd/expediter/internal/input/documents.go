package input

import (
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
	// Body is the value. In a file with a value in each line, Body is the line, valid or not.
	Body []byte

	// Index is the position of the value in its array, from 1. It is 0 outside of an array.
	Index int

	// Offset is the number of bytes of the file up to the end of the value.
	Offset int64

	// Position is the position at which the value begins.
	Position Position
}

// Where returns file:line, and the index of the value in its array.
func (d Document) Where() string {
	if d.Index == 0 {
		return d.Position.String()
	}
	return fmt.Sprintf("%s (item %d)", d.Position, d.Index)
}

// Documents yields the JSON values of a file: the items of an array, one in each line, or several after each other. It holds
// one value at a time, of no more than most bytes. The path "-" is stdin.
//
// A [*RowError] concerns one line that is too long, and other values follow. After any other error the sequence ends: the
// file cannot be opened or read, it is not JSON (ErrSyntax, ErrRecordTooLarge), or ctx has ended.
func Documents(ctx context.Context, path string, stdin io.Reader, most int) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		reader, name := Interruptible(ctx, stdin), "stdin"
		if path != Stdin {
			file, err := os.Open(path) //nolint:gosec // the operator names the file
			if err != nil {
				yield(Document{}, err)
				return
			}
			defer file.Close() //nolint:errcheck // only read
			reader, name = file, path
		}
		d := documents{ctx: ctx, most: most, src: newSource(name, decoded(reader), 0), yield: yield}
		if err := d.read(path); err != nil && !errors.Is(err, errStopped) {
			yield(Document{}, err)
		}
	}
}

// documents reads one file. It is the taker of its values.
type documents struct {
	array bool
	ctx   context.Context //nolint:containedctx // the life of one iteration
	index int
	most  int
	src   *source
	yield func(Document, error) bool
}

func (d *documents) read(path string) error {
	head, err := d.src.peek()
	if err != nil {
		return err
	}
	text := bytes.TrimLeft(head, " \t\r\n")
	switch {
	case len(text) > 0 && text[0] == '[':
		d.array = true
		return d.items()
	case slices.Contains([]string{".jsonl", ".ndjson"}, strings.ToLower(filepath.Ext(path))), oneLine(text):
		return readJSONLines(d.src, d.most, d)
	}
	return d.values()
}

// oneLine reports whether the first value ends with its line. Then a broken line does not affect later ones.
func oneLine(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return json.Valid(line)
}

// object implements taker.
func (d *documents) object(raw json.RawMessage, at Position, _ string, end int64) error {
	if d.array {
		d.index++
	}
	return d.tell(Document{Body: raw, Index: d.index, Offset: end, Position: at}, nil)
}

// reject implements taker.
func (d *documents) reject(problem *RowError) error {
	return d.tell(Document{Position: problem.Position}, problem)
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

// items reads the array that is the whole file.
func (d *documents) items() error {
	r := newJSONReader(d.src, d.most, d)
	if _, err := r.token(); err != nil {
		return r.failure(err)
	}
	if err := r.array(""); err != nil {
		return err
	}
	if _, err := r.token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w: there is more behind the array", r.here(), ErrSyntax)
	}
	return nil
}

// values reads a sequence of values.
func (d *documents) values() error {
	r := newJSONReader(d.src, d.most, d)
	for {
		r.src.allow(r.dec.InputOffset(), r.maxRecord)
		var raw json.RawMessage
		if err := r.dec.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return r.failure(err)
		}
		end := r.dec.InputOffset()
		if err := d.object(raw, r.src.position(end-int64(len(raw))), "", end); err != nil {
			return err
		}
	}
}
