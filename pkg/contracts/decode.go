package contracts

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/strictjson"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/worker"
)

// MaxBody is the largest body, in bytes, that Decode accepts for any type: 1 MiB, which is also the largest
// message that a NATS server takes by default.
const MaxBody = 1 << 20

// Message is a type of this package that is sent as its own message.
type Message interface {
	// Validate returns a *ValidationError that names every failing field, or nil.
	Validate() error
}

// appender is a Message that writes its own JSON because parts of it must stay as they are, byte for byte.
type appender interface {
	AppendJSON(dst []byte) ([]byte, error)
}

// Decode reads one message from JSON and validates it.
//
// It is strict with known fields and tolerant with others: names are matched exactly, a name that occurs twice
// (anywhere in the document) is refused, a value of the wrong type is refused, unknown fields are ignored or, where the
// type says so, kept. All failing fields are reported at once. data is copied.
//
// The error is a *ValidationError; it matches ErrTooLarge as well when data is longer than MaxBody.
func Decode[T Message](data []byte) (T, error) {
	var message, zero T
	invalid, whole := decodeInto(data, &message)
	if invalid == nil {
		return message, message.Validate()
	}
	if !whole {
		invalid.merge(message.Validate())
	}
	return zero, invalid
}

// DecodeArgs is [Decode] as a worker.Policy takes it, for jobs whose arguments are a message.
func DecodeArgs[T Message](_ nats.Header, payload []byte, args any) error {
	message, err := Decode[T](payload)
	if err == nil {
		*args.(*T) = message //nolint:forcetypeassert // registered with this type
	}
	return err
}

// Read is [Decode] for a request that is no message of this package and has no rules beyond the types of its fields.
func Read[T any](data []byte) (T, error) {
	var request, zero T
	if invalid, _ := decodeInto(data, &request); invalid != nil {
		return zero, invalid
	}
	return request, nil
}

// DecodeInto is [Decode] into the value that to points to, which may be a Message, and [Read] if it is none.
func DecodeInto(data []byte, to any) error {
	invalid, whole := decodeInto(data, to)
	message, ok := to.(Message)
	if ok && !whole {
		err := message.Validate()
		if invalid == nil {
			return err
		}
		invalid.merge(err)
	}
	if invalid == nil {
		return nil // no *ValidationError in an error
	}
	return invalid
}

// Encode validates a message and writes it as JSON. Text is written as it is: '<', '>' and '&' are not escaped, and
// unknown fields that a type keeps are written byte for byte. The error is the *ValidationError of message.Validate, or an error of
// message.MarshalJSON.
func Encode(message Message) ([]byte, error) {
	if err := message.Validate(); err != nil {
		return nil, err
	}
	if a, ok := message.(appender); ok {
		return a.AppendJSON(nil)
	}
	return marshal(message)
}

// marshal is json.Marshal without the escaping meant for HTML and without the trailing line break.
func marshal(v any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("contracts: encode %T: %w", v, err)
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// decodeInto returns the problems of data, nil for none. whole reports that the one problem is of the body, whose fields were not read.
func decodeInto(data []byte, target any) (invalid *ValidationError, whole bool) {
	if len(data) > MaxBody {
		problem := fmt.Sprintf("has %d bytes, at most %d", len(data), MaxBody)
		return &ValidationError{Type: reflect.TypeOf(target).Elem().Name(), Fields: []FieldError{{Problem: problem}}, cause: ErrTooLarge}, true
	}
	problems, problem := strictjson.Unmarshal(data, target, rules)
	if kind := strictjson.Kind(data); problem == nil && kind != "an object" {
		problem = &strictjson.Problem{Text: "must be an object, got " + kind}
	}
	if problem != nil {
		problems = []strictjson.Problem{*problem}
	}
	if len(problems) == 0 {
		return nil, false
	}
	invalid = &ValidationError{Type: reflect.TypeOf(target).Elem().Name()}
	for _, p := range problems {
		invalid.Fields = append(invalid.Fields, FieldError{Path: p.Path, Problem: p.Text})
	}
	return invalid, problem != nil
}

// merge adds the problems that Validate found in fields without a problem so far.
func (e *ValidationError) merge(err error) {
	invalid, ok := err.(*ValidationError) //nolint:errorlint // Validate returns it unwrapped.
	if !ok {
		return
	}
	known := make(map[string]bool, len(e.Fields))
	for _, field := range e.Fields {
		known[field.Path] = true
	}
	for _, field := range invalid.Fields {
		if !covered(known, field.Path) {
			e.Fields = append(e.Fields, field)
		}
	}
}

// covered reports whether the path, or a path above it, already has a problem.
func covered(known map[string]bool, path string) bool {
	for !known[path] {
		cut := strings.LastIndexByte(path, '/')
		if cut < 0 {
			return false
		}
		path = path[:cut]
	}
	return true
}

//go:generate go test -run ^TestGeneratedFilesAreCurrent$ . -update

//go:embed schemas/*.json
var schemaFiles embed.FS

// Schema returns the JSON Schema (draft 2020-12) of a type, such as "enrich-request". It describes
// the messages that readers accept, so it allows unknown members. Lengths are in characters there and in bytes in
// Validate, which also checks rules that a schema cannot express. Its $id is the URI for the attribute dataschema. Within a version, which
// is part of the $id, schemas only grow by optional members. The error matches fs.ErrNotExist.
func Schema(name string) ([]byte, error) {
	if !subject.IsSafeToken(name) {
		return nil, fmt.Errorf("contracts: no schema has such a name: %w", fs.ErrNotExist)
	}
	raw, err := schemaFiles.ReadFile("schemas/" + name + ".v1.json")
	if err != nil {
		return nil, fmt.Errorf("contracts: no schema is named %q: %w", clip(name), err)
	}
	return raw, nil
}

// DeadLetter is a job that a worker gave up, with all data needed to understand and to replay the job.
type DeadLetter = worker.DeadLetter
