// Package openapi describes the operations of services as OpenAPI 3.1. The descriptions of types are the comments of their sources.
package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// Node is an object of a document.
type Node = map[string]any

// Config describes an API.
type Config struct {
	// Title, Summary and Description describe the service. Required.
	Title, Summary, Description string

	// Tags are the groups of the service's own operations, with their descriptions. Required.
	Tags [][2]string

	// Names are the names of types in the document, by package and type, such as kvstore.Stored. They default to those of the types.
	Names map[string]string

	// Optional are the members, by schema, that requests may leave out although the type always writes them. Defaults to none.
	Optional map[string][]string

	// Types have the types of further schemas. Defaults to none.
	Types []any

	// Schemas are schemas that no type has. Defaults to none.
	Schemas Node
}

// Document returns the description of operations in JSON. root is the folder of the repository.
func Document(root string, cfg Config, ops []service.Op) ([]byte, error) {
	router := service.NewRouter(service.RouterConfig{Exports: &export.Exports{}, Name: "document", OpenAPI: []byte{}})
	router.Add(ops...)
	b := &builder{comments: NewComments(root), names: cfg.Names, optional: cfg.Optional, schemas: Node{}}
	maps.Copy(b.schemas, cfg.Schemas)
	for _, value := range append([]any{service.Problem{}}, cfg.Types...) {
		b.schema(reflect.TypeOf(value))
	}
	paths := Node{}
	for _, op := range router.Ops() {
		method, path, ok := strings.Cut(op.Route, " ")
		if !ok { // only over NATS
			continue
		}
		item, _ := paths[path].(Node)
		if item == nil {
			item = Node{}
			paths[path] = item
		}
		item[strings.ToLower(method)] = b.operation(&op)
	}
	doc := Node{
		"openapi": "3.1.1",
		"info": Node{
			"title": cfg.Title, "summary": cfg.Summary, "description": cfg.Description, "version": "1",
			"license": Node{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"tags":  tags(append(cfg.Tags, sharedTags...)),
		"paths": paths,
		"components": Node{
			"responses": problems(), "schemas": b.schemas,
			"securitySchemes": Node{"key": Node{
				"type": "http", "scheme": "bearer",
				"description": "A key (`expediter keys add`), or a token of the issuer or of an application. " +
					"Each operation lists the scopes that it requires. A service without keys, which listens only on its own machine, admits everybody.",
			}},
		},
	}
	if b.err == nil {
		b.err = b.comments.Err()
	}
	if b.err == nil {
		b.err = Bundle(doc, contracts.Schema)
	}
	if b.err != nil {
		return nil, b.err
	}
	return Marshal(doc)
}

// Marshal writes a document as it is generated.
func Marshal(doc any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(doc); err != nil {
		return nil, fmt.Errorf("openapi: %w", err)
	}
	return text.Bytes(), nil
}

var sharedTags = [][2]string{
	{"operations", "For load balancers, Prometheus and operators. A service with a listener for operators serves them there."},
	{"documents", "Descriptions of the interfaces."},
}

func tags(all [][2]string) (list []Node) {
	for _, tag := range all {
		list = append(list, Node{"name": tag[0], "description": tag[1]})
	}
	return list
}

// failures are the problems that operations answer with, by status. Retried says after how many seconds to ask again.
var failures = []struct {
	status            int
	name, description string
	header, means     string
}{
	{400, "BadRequest", "The request has mistakes; `errors` lists all of them.", "", ""},
	{401, "Unauthorized", "There is no key or token, or it is not in force.", "WWW-Authenticate", "The kind of key that is required."},
	{403, "Forbidden", "The caller may not do this.", "", ""},
	{404, "NotFound", "There is no such resource.", "", ""},
	{409, "Conflict", "The request contradicts the stored state; `code` says how.", "", ""},
	{412, "PreconditionFailed", "The stored version is not the one that the request is for.", "", ""},
	{413, "TooLarge", "The body is over the limit.", "", ""},
	{421, "Misdirected", "The service does not have the host that the request names.", "", ""},
	{422, "Unprocessable", "The request is well formed and cannot be processed; `code` says why.", "", ""},
	{429, "TooMany", "The caller has used up a quota.", "Retry-After", retryAfter},
	{500, "Internal", "The service failed; its log says more.", "", ""},
	{
		503, "Unavailable", "The service or its store is not available. A change may have been made: repeat the request.", "Retry-After",
		retryAfter,
	},
	{507, "Full", "A store of the service is full.", "Retry-After", retryAfter},
}

const retryAfter = "The number of seconds after which to ask again."

func problems() Node {
	all := Node{}
	for _, f := range failures {
		response := Node{"description": f.description, "content": Node{"application/problem+json": Node{"schema": reference("Problem")}}}
		if f.header != "" {
			response["headers"] = Node{f.header: header(f.means)}
		}
		all[f.name] = response
	}
	return all
}

func header(description string) Node {
	return Node{"description": description, "schema": Node{"type": "string"}}
}

func reference(schema string) Node { return Node{"$ref": "#/components/schemas/" + schema} }

type builder struct {
	comments *Comments
	err      error
	names    map[string]string
	optional map[string][]string
	schemas  Node // by name
}

// operation describes an operation.
func (b *builder) operation(op *service.Op) Node {
	requests, body, response := op.Types()
	o := Node{"operationId": op.Name, "security": []any{}, "summary": op.Summary, "tags": []string{op.Tag}}
	if op.Description != "" {
		o["description"] = op.Description
	}
	if !op.Need.IsPublic() {
		o["security"] = []any{Node{"key": []string{string(op.Need.Scope())}}}
	}
	if op.Need.IsOwn() {
		o["x-own"] = true
	}
	var parameters []Node
	for _, request := range requests {
		for _, p := range service.Params(request) {
			parameters = append(parameters, b.parameter(request, p))
		}
	}
	if parameters != nil {
		o["parameters"] = parameters
	}
	if op.MaxBody > 0 {
		o["requestBody"] = Node{"required": true, "content": b.content(op.Takes, body, op.Example)}
	}
	o["responses"] = b.responses(op, response)
	return o
}

// parameter describes a parameter of a request.
func (b *builder) parameter(request reflect.Type, p service.Param) Node {
	reflector := b.reflector()
	reflector.DoNotReference, reflector.ExpandedStruct, reflector.FieldNameTag = true, true, p.In
	property, _ := reflector.ReflectFromType(request).Properties.Get(p.Name)
	schema := b.node(property)
	description, _ := schema["description"].(string)
	delete(schema, "description")
	if rest, ok := strings.CutPrefix(description, p.Field.Name+" is "); ok { // the name in Go
		description = strings.ToUpper(rest[:1]) + rest[1:]
	}
	parameter := Node{"name": p.Name, "in": p.In, "description": description, "schema": schema}
	if p.Required {
		parameter["required"] = true
	}
	if p.Field.Tag.Get("empty") != "" {
		parameter["allowEmptyValue"] = true
	}
	again := p.In == "query" && p.Field.Tag.Get("path") != "" // which has the example
	if example := p.Field.Tag.Get("example"); example != "" && !again {
		parameter["example"] = example
	}
	if description == "" && b.err == nil {
		b.err = fmt.Errorf("openapi: the field %s of %s has no comment", p.Field.Name, request)
	}
	return parameter
}

// content describes bodies by their media types.
func (b *builder) content(types map[string]any, usual reflect.Type, examples map[string]string) Node {
	all := Node{}
	if types == nil {
		all["application/json"] = Node{"schema": b.schema(usual)}
	}
	for media, value := range types {
		var schema Node
		switch v := value.(type) {
		case nil:
			schema = Node{"type": "string"}
		case Node:
			schema = Node{"type": "object"}
		case service.Schema:
			schema = reference(string(v))
		default:
			schema = b.schema(reflect.TypeOf(v))
		}
		all[media] = Node{"schema": schema}
	}
	for media, text := range examples {
		var example any = text
		if !strings.HasSuffix(media, "ndjson") {
			example = json.RawMessage(text)
		}
		all[media].(Node)["example"] = example //nolint:forcetypeassert // a media type of the operation
	}
	return all
}

// responses describes the answers of an operation, and the problems that every operation may answer.
func (b *builder) responses(op *service.Op, usual reflect.Type) Node {
	good := op.Good
	if good == nil {
		good = map[int]string{http.StatusOK: "The answer."}
	}
	all := Node{}
	for status, description := range good {
		response := Node{"description": description}
		switch status {
		case http.StatusSwitchingProtocols:
			if b.schemas["Frame"] == nil {
				b.schema(usual)
			}
			all["426"] = Node{
				"description": "The request does not ask for a WebSocket.",
				"content":     Node{"text/plain": Node{"schema": Node{"type": "string"}}},
			}
		case http.StatusNoContent, http.StatusNotModified:
		default:
			response["content"] = b.content(op.Gives, usual, nil)
		}
		headers := Node{}
		for name, means := range op.Headers {
			headers[name] = header(means)
		}
		if len(headers) > 0 && status != http.StatusNoContent {
			response["headers"] = headers
		}
		all[strconv.Itoa(status)] = response
	}
	statuses := append([]int{421, 429}, op.Bad...)
	if !op.Need.IsPublic() {
		statuses = append(statuses, 401, 403, 500, 503, 507)
	}
	if op.MaxBody > 0 {
		statuses = append(statuses, 400, 413)
	}
	for _, f := range failures {
		if slices.Contains(statuses, f.status) {
			all[strconv.Itoa(f.status)] = Node{"$ref": "#/components/responses/" + f.name}
		}
	}
	return all
}

// schema describes a type, and returns a reference to its description unless that is short.
func (b *builder) schema(t reflect.Type) Node {
	if t == nil {
		return Node{}
	}
	schema := b.node(b.reflector().ReflectFromType(t))
	definitions, _ := schema["$defs"].(Node)
	for _, key := range []string{"$defs", "$schema"} {
		delete(schema, key)
	}
	for name, definition := range definitions {
		if b.schemas[name] != nil {
			continue
		}
		b.schemas[name] = definition
		if required, ok := definition.(Node)["required"].([]any); ok && b.optional[name] != nil {
			definition.(Node)["required"] = slices.DeleteFunc(required, func(member any) bool { //nolint:forcetypeassert // seen above
				return slices.Contains(b.optional[name], fmt.Sprint(member))
			})
		}
	}
	return schema
}

func (b *builder) reflector() *jsonschema.Reflector {
	return &jsonschema.Reflector{
		AllowAdditionalProperties: true, Anonymous: true, LookupComment: b.comments.Lookup,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			if _, err := contracts.Schema(kebab(t.Name())); err != nil || t.PkgPath() != module+"pkg/contracts" {
				return nil
			}
			return &jsonschema.Schema{Ref: "#/$defs/" + t.Name()} // Bundle adds it
		},
		Namer: func(t reflect.Type) string { return b.names[t.String()] },
	}
}

// node returns a schema as an object of the document.
func (b *builder) node(schema *jsonschema.Schema) (n Node) {
	data, err := json.Marshal(schema)
	if err == nil {
		err = json.Unmarshal(bytes.ReplaceAll(data, []byte(`"#/$defs/`), []byte(`"#/components/schemas/`)), &n)
	}
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("openapi: %w", err)
	}
	return n
}

// Bundle adds the schemas of package contracts to which a document refers, by the names of their types. The $comment of each has its
// origin. schema returns a schema by the name of its file.
func Bundle(doc Node, schema func(name string) ([]byte, error)) error {
	all := doc["components"].(Node)["schemas"].(Node) //nolint:forcetypeassert // the caller makes them
	for {
		data, err := json.Marshal(doc)
		if err != nil {
			return fmt.Errorf("openapi: %w", err)
		}
		missing := ""
		for _, ref := range refersTo.FindAllSubmatch(data, -1) {
			if name := string(ref[1]); all[name] == nil && (missing == "" || name < missing) {
				missing = name
			}
		}
		if missing == "" {
			return nil
		}
		name := kebab(missing)
		raw, err := schema(name)
		var described Node
		if err == nil {
			err = json.Unmarshal(bytes.ReplaceAll(raw, []byte(`"#/$defs/`), []byte(`"#/components/schemas/`)), &described)
		}
		if err != nil {
			return fmt.Errorf("openapi: there is no schema %s: %w", missing, err)
		}
		definitions, _ := described["$defs"].(Node)
		uri, _ := described["$id"].(string)
		for _, key := range []string{"$defs", "$id", "$schema"} {
			delete(described, key)
		}
		described["$comment"] = uri
		all[missing] = described
		for defined, definition := range definitions {
			if all[defined] == nil {
				definition.(Node)["$comment"] = uri + "#/$defs/" + defined //nolint:forcetypeassert // of a schema
				all[defined] = definition
			}
		}
	}
}

func kebab(name string) string {
	return strings.ToLower(strings.TrimPrefix(capital.ReplaceAllString(name, "-$0"), "-"))
}

var (
	capital  = regexp.MustCompile("[A-Z]")
	refersTo = regexp.MustCompile(`"#/components/schemas/([^"]+)"`)
)
