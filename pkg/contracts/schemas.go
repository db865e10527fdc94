package contracts

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/expediter-io/expediter/pkg/worker/token"
)

//go:generate go -C test run ./cmd/generate

// SchemaVersion is the version of all schemas. Within a version they only ever grow by optional members.
const SchemaVersion = "v1"

// schemaBase is what the URIs of schemas start with.
const schemaBase = "https://schemas.expediter.io/" + SchemaVersion + "/"

//go:embed schemas/*.json
var schemaFiles embed.FS

// Schema returns the JSON Schema (draft 2020-12) of a type, such as "enrich-request"; SchemaNames has all. It describes
// what readers accept, so it allows unknown members. Lengths are in characters there and in bytes in Validate, which
// also checks rules that a schema cannot express. The error matches fs.ErrNotExist.
func Schema(name string) ([]byte, error) {
	if !token.IsSafe(name) {
		return nil, fmt.Errorf("contracts: no schema has such a name: %w", fs.ErrNotExist)
	}
	raw, err := schemaFiles.ReadFile("schemas/" + name + "." + SchemaVersion + ".json")
	if err != nil {
		return nil, fmt.Errorf("contracts: no schema is named %q: %w", clip(name), err)
	}
	return raw, nil
}

// SchemaNames returns the names of all schemas in alphabetical order.
func SchemaNames() []string {
	entries, err := schemaFiles.ReadDir("schemas")
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), "."+SchemaVersion+".json"))
	}
	return names
}

// SchemaURI returns the URI of a schema, which is its $id and goes into the attribute dataschema.
func SchemaURI(name string) string { return schemaBase + name + ".json" }
