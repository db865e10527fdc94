package servicetest

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const eventStream = "text/event-stream"

// node is an object of a document.
type node = map[string]any

// Description is the description of a service's API, with which its answers are compared.
type Description struct {
	*document

	mu   sync.Mutex // guards seen
	seen map[string]bool
}

// document is a parsed description.
type document struct {
	api        []byte
	doc        node
	operations map[string]node // by method and path, as patterns of routes
	patterns   *http.ServeMux  // finds the operation of a request

	mu       sync.Mutex // guards the compiler
	compiler *jsonschema.Compiler
}

// documents are the parsed descriptions, by their first bytes.
var documents sync.Map

// Described returns the description of a service. It has to follow OpenAPI 3.1.
func Described(t testing.TB, api []byte) *Description {
	t.Helper()
	known, ok := documents.Load(&api[0])
	if !ok {
		read, err := readDocument(api)
		if err != nil {
			t.Fatal(err)
		}
		known, _ = documents.LoadOrStore(&api[0], read)
	}
	read, _ := known.(*document)
	return &Description{document: read, seen: map[string]bool{}}
}

func readDocument(api []byte) (*document, error) {
	d := &document{
		api: api, compiler: jsonschema.NewCompiler(), operations: map[string]node{}, patterns: http.NewServeMux(),
	}
	d.compiler.AssertFormat()
	all, err := jsonschema.UnmarshalJSON(bytes.NewReader(api))
	if err != nil {
		return nil, fmt.Errorf("servicetest: %w", err)
	}
	if err := validStandard(all); err != nil {
		return nil, err
	}
	d.doc = object(all)
	for _, schema := range at(d.doc, "components", "schemas") {
		strict(object(schema))
	}
	if err := d.compiler.AddResource("openapi.json", all); err != nil {
		return nil, fmt.Errorf("servicetest: %w", err)
	}
	for of, item := range at(d.doc, "paths") {
		for method, operation := range object(item) {
			if operation := object(operation); operation != nil {
				pattern := strings.ToUpper(method) + " " + of
				d.operations[pattern] = operation
				d.patterns.Handle(pattern, http.NotFoundHandler())
			}
		}
	}
	return d, nil
}

// openAPI is https://spec.openapis.org/oas/3.1/schema/2022-10-07, under the Apache License 2.0.
//
//go:embed testdata/openapi-3.1.json.gz
var openAPI []byte

// standard returns the schema of OpenAPI 3.1.
var standard = sync.OnceValues(func() (*jsonschema.Schema, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(openAPI))
	if err != nil {
		return nil, fmt.Errorf("servicetest: %w", err)
	}
	document, err := jsonschema.UnmarshalJSON(unpacked)
	if err != nil {
		return nil, fmt.Errorf("servicetest: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("standard.json", document); err != nil {
		return nil, fmt.Errorf("servicetest: %w", err)
	}
	return compiler.Compile("standard.json")
})

// validStandard returns an error for a document that does not follow OpenAPI 3.1.
func validStandard(document any) error {
	schema, err := standard()
	if err != nil {
		return err
	}
	if err := schema.Validate(document); err != nil {
		return fmt.Errorf("servicetest: the description does not follow OpenAPI 3.1: %w", err)
	}
	return nil
}

// strict makes a schema of the service's own refuse members that it does not name. The schemas of package contracts allow further members.
func strict(schema node) {
	if schema["$comment"] == nil && schema["properties"] != nil && schema["additionalProperties"] == nil {
		schema["additionalProperties"] = false
	}
}

// object returns a value as an object, nil when it is not one.
func object(value any) node {
	n, _ := value.(node)
	return n
}

// word returns a value as a text, "" when it is not one.
func word(value any) string {
	text, _ := value.(string)
	return text
}

// at returns an object within another, nil for none.
func at(n node, names ...string) node {
	for _, name := range names {
		n = object(n[name])
	}
	return n
}

// resolve returns the node to which a value refers, or the value itself.
func (d *document) resolve(value any) node {
	n := object(value)
	if ref := word(n["$ref"]); ref != "" {
		n = at(d.doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return n
}

// parameters returns the parameters of an operation by their places and names.
func (d *document) parameters(pattern string) map[string]node {
	all := map[string]node{}
	_, of, _ := strings.Cut(pattern, " ")
	own, _ := d.operations[pattern]["parameters"].([]any)
	shared, _ := at(d.doc, "paths", of)["parameters"].([]any)
	for _, one := range slices.Concat(shared, own) {
		p := d.resolve(one)
		all[word(p["in"])+" "+word(p["name"])] = p
	}
	return all
}

func (d *Description) saw(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen[name] = true
}

// Transport returns a transport that reports every answer whose status, type or content is not described. For a request with a good answer
// it also reports parameters and bodies that are not described.
func (d *Description) Transport(t testing.TB, next http.RoundTripper) http.RoundTripper {
	t.Helper()
	return transport{d, t, next}
}

type transport struct {
	*Description

	t    testing.TB
	next http.RoundTripper
}

// CloseIdleConnections is for [http.Client].
func (tr transport) CloseIdleConnections() { (&http.Client{Transport: tr.next}).CloseIdleConnections() }

// RoundTrip implements [http.RoundTripper].
func (tr transport) RoundTrip(r *http.Request) (*http.Response, error) {
	_, pattern := tr.patterns.Handler(r)
	operation, known := tr.operations[strings.Replace(pattern, "HEAD ", "GET ", 1)]
	var sent []byte
	if known && r.GetBody != nil {
		body, err := r.GetBody()
		if err == nil {
			sent, err = io.ReadAll(body)
		}
		if err != nil {
			return nil, fmt.Errorf("read the request again: %w", err)
		}
	}
	resp, err := tr.next.RoundTrip(r)
	if err != nil || !known || path.Clean(r.URL.Path) != r.URL.Path { // which leads to another
		return resp, err
	}
	name := pattern + " " + strconv.Itoa(resp.StatusCode)
	response := tr.resolve(at(operation, "responses")[strconv.Itoa(resp.StatusCode)])
	if response == nil {
		tr.t.Errorf("%s %s is not described", name, r.URL)
		return resp, nil
	}
	tr.saw(name)
	if resp.StatusCode < http.StatusBadRequest {
		tr.taken(r, pattern, operation, sent)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols || r.Method == http.MethodHead {
		return resp, nil
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	content := at(response, "content")
	if media := at(content, kind); media != nil {
		resp.Body = &checked{
			ReadCloser: resp.Body, check: func(text []byte) { tr.check(name, kind, text, media) }, stream: kind == eventStream,
		}
	} else if kind != "" || err == nil || content != nil {
		tr.t.Errorf("%s has the type %q, which is not described", name, kind)
	}
	return resp, nil
}

// taken checks a request that had a good answer. A CloudEvent in binary mode has its own body; each of several lines has its own
// answer.
func (tr transport) taken(r *http.Request, pattern string, operation node, sent []byte) {
	for name := range r.URL.Query() {
		if tr.parameters(pattern)["query "+name] == nil {
			tr.t.Errorf("%s has taken ?%s, which is not described", pattern, name)
		}
	}
	content := at(operation, "requestBody", "content")
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		kind = "application/json"
		for only := range content {
			if len(content) == 1 {
				kind = only
			}
		}
	}
	if media := at(content, kind); content != nil && media == nil {
		tr.t.Errorf("%s has taken a body of the type %q, which is not described", pattern, kind)
	} else if kind == form {
		tr.form(pattern, media, multipart.NewReader(bytes.NewReader(sent), params["boundary"]))
	} else if media != nil && r.Header.Get("Ce-Id") == "" && strings.HasSuffix(kind, "json") && !strings.HasSuffix(kind, "ndjson") {
		tr.check(pattern+" (request)", kind, sent, media)
	}
}

// check compares a body with the schema of its type: one value, a value for each line, or the data of events.
func (tr transport) check(name, kind string, text []byte, media node) {
	tr.t.Helper()
	parts := [][]byte{text}
	switch {
	case kind == eventStream:
		parts = nil
		for event := range bytes.SplitSeq(text[:bytes.LastIndex(text, []byte("\n\n"))+1], []byte("\n")) {
			if data, ok := bytes.CutPrefix(event, []byte("data: ")); ok {
				parts = append(parts, data)
			}
		}
	case strings.HasSuffix(kind, "ndjson"):
		parts = bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	case !strings.HasSuffix(kind, "json"):
		return
	}
	for _, part := range parts {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(part))
		if err == nil {
			err = tr.validate(media["schema"], value)
		}
		if err != nil {
			tr.t.Errorf("%s: %.2000s is not as described: %v", name, part, err)
		}
	}
}

// validate checks a value against a schema of the document.
func (d *document) validate(schema, value any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	compiler, location := d.compiler, "openapi.json"
	if ref := word(object(schema)["$ref"]); ref != "" {
		location += ref
	} else { // the schema is written in place, and refers to no other
		compiler = jsonschema.NewCompiler()
		if err := compiler.AddResource(location, schema); err != nil {
			return fmt.Errorf("schema: %w", err)
		}
	}
	compiled, err := compiler.Compile(location)
	if err != nil {
		return fmt.Errorf("schema %s: %w", location, err)
	}
	return compiled.Validate(value)
}

// checked is a body that is checked at the end of its reads. An event stream is checked at its close, too.
type checked struct {
	io.ReadCloser

	check  func([]byte)
	once   sync.Once
	stream bool
	text   bytes.Buffer
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.text.Write(p[:n])
	if err == io.EOF {
		c.once.Do(func() { c.check(c.text.Bytes()) })
	}
	return n, err
}

func (c *checked) Close() error {
	if c.stream {
		c.once.Do(func() { c.check(c.text.Bytes()) })
	}
	return c.ReadCloser.Close()
}

// Frame reports a frame of the service's WebSocket that is not as described.
func (d *Description) Frame(t testing.TB, data []byte) {
	t.Helper()
	all, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Errorf("the frame %.1000s is no JSON: %v", data, err)
		return
	}
	var schema any = node{"$ref": "#/components/schemas/Frame"}
	frame := at(d.doc, "components", "schemas", "Frame")
	if parts, _ := frame["allOf"].([]any); len(parts) == 1 { // all are strict, so the frame's own schema checks its members
		for name, own := range at(frame, "properties") {
			if value, found := object(all)[name]; found {
				delete(object(all), name)
				err = errors.Join(err, d.validate(own, value))
			}
		}
		schema = parts[0]
	}
	if err = errors.Join(err, d.validate(schema, all)); err != nil {
		t.Errorf("the frame %.1000s is not as described: %v", data, err)
	}
}
