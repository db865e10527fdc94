package input

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
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
		d := documents{ctx: ctx, name: name, yield: yield}
		src := newSource(name, decoded(reader), 0)
		head, err := src.peek()
		if err == nil {
			err = readJSON(src, head, path, most, &d)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Document{}, err)
		}
	}
}

// documents takes the values of one file.
type documents struct {
	ctx   context.Context //nolint:containedctx // the life of one iteration
	name  string          // of the file
	yield func(Document, error) bool
}

// object implements taker.
func (d *documents) object(raw json.RawMessage, at Position, index int, end int64) error {
	return d.tell(Document{Body: raw, Index: index, Offset: end, Position: at}, nil)
}

// reject implements taker.
func (d *documents) reject(problem *RowError) error {
	return d.tell(Document{Position: problem.Position}, problem)
}

func (d *documents) tell(doc Document, err error) error {
	if d.ctx.Err() != nil {
		return fmt.Errorf("%s: %w", d.name, context.Cause(d.ctx))
	}
	if !d.yield(doc, err) {
		return errStopped
	}
	return nil
}
