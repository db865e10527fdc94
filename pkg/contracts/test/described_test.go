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
	file := check.Must(os.Open(filepath.Join("testdata", name+".json.gz")))(t)
	defer file.Close()
	unpacked := check.Must(gzip.NewReader(file))(t)
	document := check.Must(jsonschema.UnmarshalJSON(unpacked))(t)
	compiler := jsonschema.NewCompiler()
	check.OK(t, compiler.AddResource("standard.json", document))
	return check.Must(compiler.Compile("standard.json"))(t)
}

func TestDescriptionsFollowTheirStandards(t *testing.T) {
	t.Parallel()
	files := check.Must(render.Files(root))(t)
	found := 0
	for file, name := range map[string]string{"asyncapi.json": "asyncapi-3.0", "openapi.json": "openapi-3.1"} {
		schema := standard(t, name)
		for path, content := range files {
			if !strings.HasSuffix(path, "/"+file) {
				continue
			}
			found++
			document := check.Must(jsonschema.UnmarshalJSON(bytes.NewReader(content)))(t)
			check.Is(t, schema.Validate(document), nil, path)
		}
	}
	check.Same(t, "descriptions", found, 6)
}
