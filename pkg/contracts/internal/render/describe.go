package render

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// node is an object of a description.
type node = map[string]any

// descriptions makes the descriptions of each service's API and messages, as JSON and as one page, from the YAML that people keep. schemas
// are the files of the schemas.
func descriptions(root string, schemas map[string][]byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, service := range []string{contracts.ServiceEnricher, contracts.ServiceImporter, contracts.ServiceNotifier} {
		folder := "services/" + service + "/internal/httpapi/"
		doc, err := read(root, folder+"openapi.yaml")
		if err != nil {
			return nil, err
		}
		shared, err := read(root, "pkg/service/openapi.yaml")
		if err != nil {
			return nil, err
		}
		merge(doc, shared)
		for _, operation := range operations(doc) {
			addProblems(operation)
		}
		if err := bundle(doc, schemas); err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		if err := add(files, folder+"openapi.json", doc); err != nil {
			return nil, err
		}
		async, err := messages(root, folder, doc, schemas)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		if err := add(files, folder+"asyncapi.json", async); err != nil {
			return nil, err
		}
		doc["async"] = async
		merge(object(doc["components"]), node{"schemas": object(async["components"])["schemas"]}) // on one page
		var b bytes.Buffer
		if err := page.Execute(&b, doc); err != nil {
			return nil, fmt.Errorf("render: %s: %w", folder, err)
		}
		files[folder+"docs.html"] = b.Bytes()
	}
	return files, nil
}

// object and list return a value as an object or a list, nil when it is neither.
func object(value any) node {
	n, _ := value.(node)
	return n
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}

func read(root, name string) (doc node, err error) {
	data, err := os.ReadFile(filepath.Join(root, name)) //nolint:gosec // one of the repository
	if err == nil {
		err = yaml.Unmarshal(data, &doc)
	}
	if err != nil {
		return nil, fmt.Errorf("render: %s: %w", name, err)
	}
	return doc, nil
}

// merge adds the members of from to to. Of members in both, objects are merged, and lists have the elements of to first.
func merge(to, from node) {
	for name, value := range from {
		switch there := to[name].(type) {
		case nil:
			to[name] = value
		case node:
			merge(there, object(value))
		case []any:
			to[name] = append(there, list(value)...)
		}
	}
}

// operations returns the operations of a description by method and path, such as "GET /v1/events".
func operations(doc node) map[string]node {
	all := map[string]node{}
	for path, item := range object(doc["paths"]) {
		for method, operation := range object(item) {
			if operation, ok := operation.(node); ok {
				all[strings.ToUpper(method)+" "+path] = operation
			}
		}
	}
	return all
}

// addProblems adds the problems that every route may answer: those of the store, and those of access if the route is not for everybody.
func addProblems(operation node) {
	problems := map[string]string{"421": "Misdirected", "429": "TooMany"}
	if len(list(operation["security"])) > 0 {
		maps.Copy(problems, map[string]string{
			"401": "Unauthorized", "403": "Forbidden", "500": "Internal", "503": "Unavailable", "507": "Full",
		})
	}
	responses := node{}
	for status, name := range problems {
		responses[status] = node{"$ref": "#/components/responses/" + name}
	}
	merge(object(operation["responses"]), responses)
}

// bundle adds the schemas of package contracts to which a description refers, by the names of their types. The $comment of each has its
// origin.
func bundle(doc node, schemas map[string][]byte) error {
	all := object(object(doc["components"])["schemas"])
	for {
		data, err := json.Marshal(doc)
		if err != nil {
			return fmt.Errorf("render: %w", err)
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
		name := strings.ToLower(strings.TrimPrefix(capital.ReplaceAllString(missing, "-$0"), "-"))
		raw := schemas["pkg/contracts/schemas/"+name+"."+contracts.SchemaVersion+".json"]
		var schema node
		if err := json.Unmarshal(bytes.ReplaceAll(raw, []byte(`"#/$defs/`), []byte(`"#/components/schemas/`)), &schema); err != nil {
			return fmt.Errorf("render: there is no schema %s: %w", missing, err)
		}
		definitions := object(schema["$defs"])
		for _, key := range []string{"$defs", "$id", "$schema"} {
			delete(schema, key)
		}
		schema["$comment"] = contracts.SchemaURI(name)
		all[missing] = schema
		for defined, definition := range definitions {
			if all[defined] == nil {
				object(definition)["$comment"] = contracts.SchemaURI(name) + "#/$defs/" + defined
				all[defined] = definition
			}
		}
	}
}

var (
	capital   = regexp.MustCompile("[A-Z]")
	parameter = regexp.MustCompile(`\{([a-z_A-Z]+)\}`)
	refersTo  = regexp.MustCompile(`"#/components/schemas/([^"]+)"`)
)

//go:embed docs.html
var pageText string

// page is the template of the HTML page of a description.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"json": func(value any) (string, error) {
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		err := encoder.Encode(value)
		return b.String(), err
	},
	"message": func(m node) template.HTML {
		if kind, ok := m["contentType"].(string); ok {
			return template.HTML("<code>" + template.HTMLEscapeString(kind) + "</code>") //nolint:gosec // escaped
		}
		return typeOf(m["payload"])
	},
	"operations": operations,
	"parts":      strings.Fields,
	"resolved":   resolved,
	"trait": func(ref any) template.HTML {
		name := template.HTMLEscapeString(lastPart(object(ref)))
		return template.HTML(`<a href="#headers-` + name + `">` + name + `</a>`) //nolint:gosec // escaped
	},
	"type": typeOf,
}).Parse(pageText))

// resolved returns the node to which a value refers, or the value itself.
func resolved(doc node, value any) node {
	n := object(value)
	ref, ok := n["$ref"].(string)
	if !ok {
		return n
	}
	there := any(doc)
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		there = object(there)[part]
	}
	return object(there)
}

// typeOf describes the values of a schema in a few words. Names of schemas are links.
func typeOf(schema any) template.HTML {
	n := object(schema)
	for _, key := range []string{"anyOf", "oneOf"} {
		if choices := list(n[key]); choices != nil {
			kinds := make([]string, len(choices))
			for i, one := range choices {
				kinds[i] = string(typeOf(one))
			}
			return template.HTML(strings.Join(slices.Compact(kinds), " or ")) //nolint:gosec // made here
		}
	}
	if schema := n["schema"]; schema != nil { // with its format
		return typeOf(schema)
	}
	if ref, ok := n["$ref"].(string); ok {
		name := template.HTMLEscapeString(strings.TrimSuffix(lastPart(n), ".json"))
		if strings.HasPrefix(ref, "schemas/") {
			return template.HTML(`<a href="` + template.HTMLEscapeString(ref) + `">` + name + `</a>`) //nolint:gosec // escaped
		}
		return template.HTML(`<a href="#schema-` + name + `">` + name + `</a>`) //nolint:gosec // escaped
	}
	switch kind := fmt.Sprint(n["type"]); {
	case n["enum"] != nil:
		words := make([]string, 0, 8)
		for _, word := range list(n["enum"]) {
			words = append(words, template.HTMLEscapeString(fmt.Sprint(word)))
		}
		return template.HTML(strings.Join(words, " | ")) //nolint:gosec // escaped
	case n["const"] != nil:
		return template.HTML(template.HTMLEscapeString(fmt.Sprint(n["const"]))) //nolint:gosec // escaped
	case kind == "array":
		return "array of " + typeOf(n["items"])
	case n["additionalProperties"] != nil && n["properties"] == nil:
		return "map of " + typeOf(n["additionalProperties"])
	case n["format"] != nil:
		return template.HTML(template.HTMLEscapeString(fmt.Sprint(n["format"]))) //nolint:gosec // escaped
	case n["type"] == nil:
		return "any"
	default:
		return template.HTML(template.HTMLEscapeString(kind)) //nolint:gosec // escaped
	}
}

// lastPart returns the last part of a reference.
func lastPart(n node) string {
	ref, _ := n["$ref"].(string)
	return ref[strings.LastIndexByte(ref, '/')+1:]
}
