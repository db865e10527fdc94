package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/compress"
)

const (
	version = 1

	// maxName bounds the name of a step, in bytes.
	maxName = 100
)

// record is the first line of a journal: JSON that describes the rest. The results come after the line feed, one after the other, byte for
// byte.
type record struct {
	Version    int     `json:"v"`
	Writer     string  `json:"writer"`
	Origin     string  `json:"origin"`
	Deliveries int     `json:"deliveries"`
	Job        string  `json:"job,omitempty"`
	Steps      []entry `json:"steps,omitempty"` // always present, and last
}

// entry is one step.
type entry struct {
	Name   string  `json:"name"`
	At     int64   `json:"at"`               // Unix milliseconds, by the worker's clock
	Size   int     `json:"size"`             // bytes in this record
	Codec  string  `json:"codec,omitempty"`  // the codec of the stored bytes
	Length int     `json:"length,omitempty"` // the length of the result, when the stored bytes are not the result itself
	Object *object `json:"object,omitempty"` // the object with the bytes, when they are not in this record

	data []byte
}

// object is a result in separate messages.
type object struct {
	ID    string `json:"id"`
	Parts int    `json:"parts"`
	Size  int    `json:"size"`
}

func (o *object) subject(part int) string { return o.ID + "." + strconv.Itoa(part) }

// parts yields the numbers of the messages that hold the result besides the record.
func (e entry) parts() iter.Seq[int] {
	return func(yield func(int) bool) {
		if e.Object == nil {
			return
		}
		for part := range e.Object.Parts {
			if !yield(part) {
				return
			}
		}
	}
}

// head is the JSON of a record up to its steps, for encode.
func (rec record) head() []byte {
	const room = 512
	head := appendInt(make([]byte, 0, room), `{"v":`, int64(rec.Version))
	head = appendText(head, `,"writer":`, rec.Writer)
	head = appendText(head, `,"origin":`, rec.Origin)
	head = appendInt(head, `,"deliveries":`, int64(rec.Deliveries))
	if rec.Job != "" {
		head = appendText(head, `,"job":`, rec.Job)
	}
	return append(head, `,"steps":[`...)
}

// encode returns the record with the given steps. lines is its head and the lines of the first known steps. encode appends to lines where
// there is room, and returns the length of the head and all lines.
func encode(lines []byte, known int, steps []entry) (data []byte, end int) {
	for i, e := range steps[known:] {
		if known+i > 0 {
			lines = append(lines, ',')
		}
		lines = e.appendTo(lines)
	}
	end = len(lines)
	lines = append(lines, "]}\n"...)
	for _, e := range steps {
		lines = append(lines, e.data...)
	}
	return lines, end
}

// appendTo appends the JSON of the entry. It does not use encoding/json, which took most of a step's processor time here.
func (e *entry) appendTo(line []byte) []byte {
	line = appendText(line, `{"name":`, e.Name)
	line = appendInt(line, `,"at":`, e.At)
	line = appendInt(line, `,"size":`, int64(e.Size))
	if e.Codec != "" {
		line = appendText(line, `,"codec":`, e.Codec)
		line = appendInt(line, `,"length":`, int64(e.Length))
	}
	if e.Object != nil {
		line = appendText(line, `,"object":{"id":`, e.Object.ID)
		line = appendInt(line, `,"parts":`, int64(e.Object.Parts))
		line = append(appendInt(line, `,"size":`, int64(e.Object.Size)), '}')
	}
	return append(line, '}')
}

func appendInt(b []byte, before string, n int64) []byte {
	return strconv.AppendInt(append(b, before...), n, 10)
}

func appendText(b []byte, before, text string) []byte {
	b = append(b, before...)
	if strings.ContainsFunc(text, needsEscape) {
		quoted, _ := json.Marshal(text)
		return append(b, quoted...)
	}
	return append(append(append(b, '"'), text...), '"')
}

func needsEscape(r rune) bool { return r < ' ' || r == '"' || r == '\\' || r >= utf8.RuneSelf }

// decode is the inverse of encode. The results share memory with data.
func decode(data []byte) (record, error) {
	var rec record
	line, rest, found := bytes.Cut(data, []byte{'\n'})
	if !found {
		return record{}, errors.New("the first line has no end")
	}
	err := json.Unmarshal(line, &rec)
	switch {
	case rec.Version > version: // checked first: its fields may have other types
		return record{}, fmt.Errorf("a newer program wrote it: version %d, this one knows %d", rec.Version, version)
	case err != nil:
		return record{}, fmt.Errorf("the first line is not JSON: %w", err)
	case rec.Version < 1 || rec.Writer == "":
		return record{}, fmt.Errorf("version %d, writer %q", rec.Version, rec.Writer)
	}
	for i := range rec.Steps {
		e := &rec.Steps[i]
		if err := e.check(len(rest)); err != nil {
			return record{}, err
		}
		e.data, rest = rest[:e.Size:e.Size], rest[e.Size:]
	}
	if len(rest) > 0 {
		return record{}, fmt.Errorf("%d bytes too many", len(rest))
	}
	return rec, nil
}

// check returns an error for an entry that this package does not write. left is the number of remaining bytes.
func (e *entry) check(left int) error {
	switch {
	case e.Size < 0 || e.Size > left:
		return fmt.Errorf("step %q has %d bytes of %d", e.Name, e.Size, left)
	case e.Codec != "" && e.Codec != compress.Zstd:
		return fmt.Errorf("step %q has the unknown codec %.32q", e.Name, e.Codec)
	case e.Length < 0 || e.Length > MaxResult || e.Length > 0 && e.Codec == "":
		return fmt.Errorf("step %q is of %d bytes, codec %q (the limit is %d)", e.Name, e.Length, e.Codec, MaxResult)
	case e.Object == nil:
		return nil
	case e.Size != 0 || e.Object.Parts < 1 || e.Object.Parts > maxParts || e.Object.Size < 0 || e.Object.Size > MaxResult ||
		strings.ContainsAny(e.Object.ID, ".*> ") || e.Object.ID == "":
		return fmt.Errorf("step %q is in the impossible object %+v", e.Name, *e.Object)
	}
	return nil
}

// checkName returns an error for a name that is unreadable in a log.
func checkName(name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%w: the name %.120q: use 1 to %d bytes of text", ErrMisuse, name, maxName)
	}
	return nil
}

// MaxResult bounds the result of a step, in bytes.
const MaxResult = 64 << 20

const (
	// compressAbove is the size below which compression saves too little.
	compressAbove = 4 << 10

	// A result larger than maxInline, or one that would make the record larger than maxRecord, has separate messages: the record is written
	// with every step.
	maxInline = 4 << 10
	maxRecord = 32 << 10

	// maxPart bounds the messages of a result. maxParts is their number for MaxResult with the smallest message size that a server is likely
	// to have.
	maxPart  = 512 << 10
	maxParts = 64 << 10
)

// errMissing is returned when a message of a result is missing.
var errMissing = errors.New("step: a part of the result is missing")

// pack makes the entry of a result, and stores the parts that do not go into the record.
func (j *Journal) pack(ctx context.Context, until time.Time, name string, data []byte) (entry, error) {
	if len(data) > MaxResult {
		return entry{}, fmt.Errorf("%w: step %q: %d bytes, the limit is %d", ErrTooLarge, name, len(data), MaxResult)
	}
	e := entry{Name: name, At: time.Now().UnixMilli()}
	stored := data
	if len(data) > compressAbove {
		packed, saves, err := j.server.codec.Compress(data)
		if err != nil {
			return entry{}, fmt.Errorf("step: %w", err)
		}
		if saves {
			e.Codec, e.Length, stored = compress.Zstd, len(data), packed
		}
	}
	total := len(stored)
	for _, other := range j.steps {
		total += other.Size
	}
	if len(stored) <= maxInline && total <= maxRecord {
		e.Size, e.data = len(stored), bytes.Clone(stored)
		return e, nil
	}
	size := j.server.partSize()
	e.Object = &object{ID: nuid.Next(), Parts: (len(stored)-1)/size + 1, Size: len(stored)}
	for part := range e.parts() {
		rest := stored[part*size:]
		put := func() error { return j.store.put(ctx, e.Object.subject(part), rest[:min(len(rest), size)]) }
		// A second store does no harm: no attempt knows the part's subject before the record is written.
		if err := j.persist(ctx, until, put); err != nil {
			return entry{}, fmt.Errorf("%w: step %q: %w", ErrNotRecorded, name, err)
		}
	}
	return e, nil
}

// result is the inverse of pack. The caller owns the result.
func (j *Journal) result(ctx context.Context, until time.Time, e entry) ([]byte, error) {
	stored := e.data
	for part := range e.parts() {
		err := j.persist(ctx, until, func() error {
			data, err := j.store.fetch(ctx, e.Object.subject(part))
			if err == nil {
				stored = append(stored, data...)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("step: result of %q of job %s: %w", e.Name, j.attempt.Job, err)
		}
	}
	if e.Object != nil && len(stored) != e.Object.Size {
		return nil, &RecordError{Cause: fmt.Errorf("%d bytes instead of %d", len(stored), e.Object.Size), Job: j.attempt.Job, Step: e.Name}
	}
	if e.Codec == "" {
		return append(make([]byte, 0, len(stored)), stored...), nil
	}
	data, err := j.server.codec.Decompress(stored, e.Length)
	if err != nil {
		return nil, &RecordError{Cause: err, Job: j.attempt.Job, Step: e.Name}
	}
	return data, nil
}

// persist repeats try until it succeeds, its time is over, or another try cannot succeed.
func (j *Journal) persist(ctx context.Context, until time.Time, try func() error) error {
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		err := try()
		if err == nil || errors.Is(err, errMissing) || isPermanent(err) || !pause(ctx, wait, until) {
			return err
		}
	}
}
