package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// node is an object of a description.
type node = map[string]any

// descriptions makes the description of each service's API from the YAML that people keep, and that of all messages from the declared
// streams. schemas are the files of the schemas.
func descriptions(root string, schemas map[string][]byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, service := range []string{contracts.ServiceNotifier} {
		folder := "services/" + service + "/internal/httpapi/"
		doc, err := read(root, folder+"openapi.yaml")
		if err != nil {
			return nil, err
		}
		shared, err := read(root, "internal/service/openapi.yaml")
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
	}
	doc, err := messages(schemas)
	if err != nil {
		return nil, err
	}
	return files, add(files, asyncAPI, doc)
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
	data, err := os.ReadFile(filepath.Join(root, name))
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
