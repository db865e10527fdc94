package test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/expediter-io/expediter/pkg/contracts/test/render"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// standard returns the schema of a standard: that of OpenAPI 3.1 is https://spec.openapis.org/oas/3.1/schema/2022-10-07, that of AsyncAPI
// 3.0 is 3.0.0 of https://github.com/asyncapi/spec-json-schemas, both under the Apache License 2.0.
func standard(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name+".json.gz"))
	check.OK(t, err)
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	check.OK(t, err)
	document, err := jsonschema.UnmarshalJSON(unpacked)
	check.OK(t, err)
	compiler := jsonschema.NewCompiler()
	check.OK(t, compiler.AddResource("standard.json", document))
	schema, err := compiler.Compile("standard.json")
	check.OK(t, err)
	return schema
}

func TestDescriptionsFollowTheirStandards(t *testing.T) {
	t.Parallel()
	files, err := render.Files(root)
	check.OK(t, err)
	found := 0
	for file, name := range map[string]string{"asyncapi.json": "asyncapi-3.0", "openapi.json": "openapi-3.1"} {
		schema := standard(t, name)
		for path, content := range files {
			if !strings.HasSuffix(path, "/"+file) {
				continue
			}
			found++
			document, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
			check.OK(t, err)
			check.Is(t, schema.Validate(document), nil, path)
		}
	}
	check.Same(t, "descriptions", found, 6)
}
