package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// Op is one operation of a service. Its HTTP route, its endpoint over NATS and its description are made from it. Make it with
// [NewOp], [NewRoute] or [Follow].
type Op struct {
	// Name is the operationId of the description. Required with a route.
	Name string

	// Route is the pattern of the HTTP route, and Need says who may call it. Defaults to none.
	Route string
	Need  access.Need

	// Subject is the subject of the endpoint over NATS, such as importer.v1.get. Defaults to none.
	Subject string

	// MaxBody is the largest body over HTTP, in bytes. Defaults to 0: the operation takes no body.
	MaxBody int64

	// Strict refuses query parameters that the operation does not take, for operations that would otherwise select more than
	// the caller of a misspelt parameter meant. Defaults to false.
	Strict bool

	// Tag, Summary and Description describe the operation.
	Tag, Summary, Description string

	// Example has the text of a body by media type, see [JSON]. Defaults to none.
	Example map[string]string

	// Good describes the statuses of good answers, and Headers their headers. Bad lists the further statuses; those that every
	// route has are added. Good defaults to 200.
	Good    map[int]string
	Headers map[string]string
	Bad     []int

	// Takes and Gives have a value of the type of the body and of good answers, by media type: a nil value is any text, and a
	// [Schema] is the name of a schema. They default to the types of the request and the answer, in JSON.
	Takes, Gives map[string]any

	answer   func(context.Context, Request) ([]byte, error)
	body     reflect.Type   // of the body over HTTP, nil for none
	requests []reflect.Type // with the parameters
	response reflect.Type
	serve    func(*Router, http.ResponseWriter, *http.Request) error
	streams  bool
}

// JSON returns the example of a body in JSON.
func JSON(example string) map[string]string { return map[string]string{"application/json": example} }

// Schema names a schema of the description that no type has.
type Schema string

// Types returns the types that describe the operation: those with its parameters, that of its body and that of its answer, nil for
// none.
func (op *Op) Types() (requests []reflect.Type, body, response reflect.Type) {
	return op.requests, op.body, op.response
}

// Answer is an answer that is more over HTTP than its JSON with the status 200.
type Answer interface {
	// HTTP sets the headers, and returns the status and what the body is made of, nil for no body.
	HTTP(header http.Header) (status int, body any)
}

// Text is an answer in another form than JSON.
type Text struct {
	Media string
	Data  []byte
}

// NewOp returns an operation that do answers. Fields of Q with the tag path, query or header are parameters; those with the tag
// required are required. With MaxBody, the body is the field with the tag body, or else Q itself, in JSON that
// [contracts.DecodeInto] reads. A field with the tag header:"*" gets all headers. All mistakes of a request are reported at once.
//
// Over NATS the message is Q in JSON, or the body if Q keeps it out of its JSON. Parameters in headers are headers there, too.
func NewOp[Q, R any](op Op, do func(context.Context, Q) (R, error)) Op {
	in := newReader(reflect.TypeFor[Q](), op)
	op.requests, op.body, op.response = []reflect.Type{reflect.TypeFor[Q]()}, in.bodyType(), reflect.TypeFor[R]()
	op.serve = func(_ *Router, w http.ResponseWriter, r *http.Request) error {
		var q Q
		if err := in.http(w, r, &q); err != nil {
			return err
		}
		answer, err := do(r.Context(), q)
		if err != nil {
			return err
		}
		return Reply(w, answer)
	}
	op.answer = func(ctx context.Context, m Request) ([]byte, error) {
		var q Q
		if err := in.nats(m, &q); err != nil {
			return nil, err
		}
		answer, err := do(ctx, q)
		if err != nil {
			return nil, err
		}
		return encode(answer)
	}
	return op
}

// NewRoute returns an operation over HTTP that serve answers. Q describes its parameters, as in [NewOp].
func NewRoute[Q any](op Op, serve func(http.ResponseWriter, *http.Request) error) Op {
	op.requests = []reflect.Type{reflect.TypeFor[Q]()}
	op.serve = func(_ *Router, w http.ResponseWriter, r *http.Request) error { return serve(w, r) }
	return op
}

// WithMedia returns the operation with another handler for the requests over HTTP whose bodies have a media type.
func (op Op) WithMedia(media string, serve func(http.ResponseWriter, *http.Request) error) Op {
	usual := op.serve
	op.serve = func(a *Router, w http.ResponseWriter, r *http.Request) error {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && kind == media {
			return serve(w, r)
		}
		return usual(a, w, r)
	}
	return op
}

// Endpoints returns the endpoints over NATS of operations.
func Endpoints(ops []Op) (all []Endpoint) {
	for _, op := range ops {
		if op.Subject == "" {
			continue
		}
		_, name, _ := strings.Cut(op.Subject, ".v1.")
		all = append(all, Endpoint{
			Answer: op.answer, Name: strings.ReplaceAll(name, ".", "-"), Subject: op.Subject,
			Takes: outline(op.requests[0]), Gives: outline(op.response),
		})
	}
	return all
}

// outline describes a type in the metadata of an endpoint: by its name if there is a schema of it, else by its required members.
func outline(t reflect.Type) string {
	if t.Kind() != reflect.Struct || t.PkgPath() == contractsPath {
		return cmp.Or(t.Name(), t.String())
	}
	if t.NumField() > 0 && t.Field(0).Anonymous { // which it extends
		return outline(t.Field(0).Type)
	}
	var members []string
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Tag.Get("body") != "" && name == "-":
			return outline(f.Type)
		case name == "", name == "-", strings.Contains(options, "omit"):
		case f.Type.Kind() == reflect.String:
			members = append(members, strconv.Quote(name)+`:"…"`)
		default:
			members = append(members, strconv.Quote(name)+":…")
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

var contractsPath = reflect.TypeFor[contracts.FieldError]().PkgPath()

// Reply writes an answer of an operation.
func Reply(w http.ResponseWriter, answer any) error {
	status := http.StatusOK
	if a, ok := answer.(Answer); ok {
		status, answer = a.HTTP(w.Header())
	}
	if _, none := answer.(struct{}); none || answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	data, err := encode(answer)
	if err != nil {
		return err
	}
	media := "application/json"
	if text, ok := answer.(Text); ok {
		media = text.Media
	} else {
		data = append(data, '\n') // for terminals
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data)
	return nil
}

// encode writes the body of an answer. Messages that keep members which nobody knows write themselves.
func encode(answer any) ([]byte, error) {
	switch v := answer.(type) {
	case Text:
		return v.Data, nil
	case interface {
		contracts.Message
		AppendJSON(dst []byte) ([]byte, error)
	}:
		return contracts.Encode(v)
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return data, nil
}

// reader reads requests into values of one type.
type reader struct {
	body    []int // the field of the body, nil for the request itself
	headers []int // the field of all headers, nil for none
	maxBody int64
	names   []string // of the query parameters
	params  []Param
	strict  bool
	whole   bool // the message over NATS is the body
	of      reflect.Type
}

// Param is a parameter of an operation.
type Param struct {
	// In is path, query or header, and Name the name there.
	In, Name string

	// Field is the field of the request.
	Field reflect.StructField

	// Required reports whether a request without the parameter is refused.
	Required bool

	least, most int // of a number
}

// Params returns the parameters of a type of request.
func Params(t reflect.Type) (all []Param) {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	for _, field := range reflect.VisibleFields(t) {
		for _, in := range []string{"path", "query", "header"} {
			name := field.Tag.Get(in)
			if name == "" || name == "*" {
				continue
			}
			p := Param{In: in, Name: name, Field: field, Required: in == "path" || field.Tag.Get("required") != ""}
			for rule := range strings.SplitSeq(field.Tag.Get("jsonschema"), ",") {
				key, value, _ := strings.Cut(rule, "=")
				switch n, _ := strconv.Atoi(value); key {
				case "minimum":
					p.least = n
				case "maximum":
					p.most = n
				}
			}
			all = append(all, p)
		}
	}
	return all
}

func newReader(t reflect.Type, op Op) *reader {
	in := &reader{maxBody: op.MaxBody, of: t, params: Params(t), strict: op.Strict}
	if t.Kind() == reflect.Struct {
		for _, field := range reflect.VisibleFields(t) {
			if field.Tag.Get("body") != "" {
				in.body, in.whole = field.Index, field.Tag.Get("json") == "-"
			}
			if field.Tag.Get("header") == "*" {
				in.headers = field.Index
			}
		}
	}
	for _, p := range in.params {
		if p.In == "query" {
			in.names = append(in.names, p.Name)
		}
	}
	slices.Sort(in.names)
	return in
}

func (in *reader) bodyType() reflect.Type {
	switch {
	case in.maxBody == 0:
		return nil
	case in.body != nil:
		return in.of.FieldByIndex(in.body).Type
	}
	return in.of
}

// http reads a request into the value that to points to.
func (in *reader) http(w http.ResponseWriter, r *http.Request, to any) error {
	q := reflect.ValueOf(to).Elem()
	var invalid error
	if in.maxBody > 0 {
		data, err := Body(w, r, in.maxBody)
		if err != nil {
			return err
		}
		invalid = in.decode(data, q)
	}
	return in.bind(q, invalid, r.PathValue, r.URL, r.Header)
}

// nats reads a message into the value that to points to.
func (in *reader) nats(m Request, to any) error {
	q := reflect.ValueOf(to).Elem()
	var invalid error
	if in.whole || in.body == nil {
		invalid = in.decode(m.Data, q)
	} else {
		invalid = contracts.DecodeInto(m.Data, to)
	}
	return in.bind(q, invalid, nil, nil, http.Header(m.Header))
}

// decode reads a body.
func (in *reader) decode(data []byte, q reflect.Value) error {
	if in.body != nil {
		q = q.FieldByIndex(in.body)
	}
	if q.Kind() == reflect.Slice && q.Type().Elem().Kind() == reflect.Uint8 {
		q.SetBytes(data)
		return nil
	}
	return contracts.DecodeInto(data, q.Addr().Interface())
}

// bind sets the parameters of a request, and returns all mistakes: of the body, which are invalid, and of the parameters. There is no
// URL over NATS.
func (in *reader) bind(q reflect.Value, invalid error, path func(string) string, address *url.URL, header http.Header) error {
	var wrong contracts.Mistakes
	var query url.Values
	if address != nil && address.RawQuery != "" {
		query = address.Query()
	}
	if in.strict {
		for _, name := range slices.Sorted(maps.Keys(query)) {
			wrong.Add(!slices.Contains(in.names, name), "?"+name, "is not known here: want "+strings.Join(in.names, ", "))
			wrong.Add(len(query[name]) > 1, "?"+name, "is there more than once")
		}
	}
	for i := range in.params {
		p := &in.params[i]
		var text, at string
		switch {
		case p.In == "header":
			at = p.Name
			if values := valuesOf(header, p.Name, address == nil); len(values) > 0 {
				text = values[0]
				wrong.Add(len(values) > 1, at, "is there more than once")
			}
		case address == nil: // over NATS, where it is a member
			name, _, _ := strings.Cut(p.Field.Tag.Get("json"), ",")
			wrong.Add(invalid == nil && p.Required && q.FieldByIndex(p.Field.Index).IsZero(), "/"+name, "is required")
			continue
		case p.In == "path":
			text, at = path(p.Name), p.Name
		default:
			text, at = query.Get(p.Name), "?"+p.Name
		}
		if text != "" {
			p.set(q.FieldByIndex(p.Field.Index), at, text, &wrong)
		} else {
			wrong.Add(p.Required, at, "is required")
		}
	}
	if in.headers != nil {
		q.FieldByIndex(in.headers).Set(reflect.ValueOf(nats.Header(header)))
	}
	if wrong == nil {
		return invalid
	}
	if body, ok := errors.AsType[*contracts.ValidationError](invalid); ok {
		wrong = append(body.Fields, wrong...)
	}
	return wrong.In("request")
}

// valuesOf returns the values of a header. Names of NATS are not canonical.
func valuesOf(header http.Header, name string, exact bool) []string {
	if exact {
		return header[name]
	}
	return header.Values(name)
}

// set sets a field to a parameter.
func (p *Param) set(field reflect.Value, at, text string, wrong *contracts.Mistakes) {
	if field.Type() == reflect.TypeFor[time.Time]() {
		when, err := time.Parse(time.RFC3339, text)
		wrong.Add(err != nil, at, "must be a time such as 2026-12-01T08:00:00Z")
		field.Set(reflect.ValueOf(when))
		return
	}
	if field.Kind() != reflect.Int {
		field.SetString(text)
		return
	}
	n, err := strconv.Atoi(text)
	wrong.Add(err != nil || n < p.least || n > p.most, at, fmt.Sprintf("must be %d to %d", p.least, p.most))
	field.SetInt(int64(n))
}
