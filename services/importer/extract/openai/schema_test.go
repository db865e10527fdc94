package openai_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/invopop/jsonschema"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

var update = flag.Bool("update", false, "write the golden files anew")

// absent are members that no model fills in: what is known without it, and what only the source can say.
var absent = map[string]bool{"source": true, "unverified": true, "warnings": true, "index": true, "end_sec": true}

// TestSchemaIsThatOfTheRecipe makes the schema of package recipe and its comments. Run it with -update after a change there.
func TestSchemaIsThatOfTheRecipe(t *testing.T) {
	t.Parallel()
	reflector := jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true}
	check.OK(t, reflector.AddGoComments("github.com/expediter-io/expediter/services/importer/extract/openai", "../../recipe"))
	made := reflector.Reflect(recipe.Recipe{})
	made.Version = ""
	strict(made)
	var got bytes.Buffer
	encoder := json.NewEncoder(&got)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	check.OK(t, encoder.Encode(made))
	const file = "recipe.schema.json"
	if *update {
		check.OK(t, os.WriteFile(file, got.Bytes(), 0o600))
	}
	want, err := os.ReadFile(file)
	check.OK(t, err)
	check.Equal(t, string(want), got.String())
	suitsStrictModes(t, want)
}

// strict brings a schema into the form that strict modes ask for: every member required, no others allowed, and no keyword
// that only some servers know. What a source does not say is an empty text, 0 or an empty list; only times can be null.
func strict(s *jsonschema.Schema) {
	if s.Items != nil {
		strict(s.Items)
	}
	if s.Properties == nil {
		return
	}
	s.Required = nil
	for p := s.Properties.Oldest(); p != nil; {
		next := p.Next()
		switch {
		case absent[p.Key]:
			s.Properties.Delete(p.Key)
		case p.Key == "timestamp_sec":
			s.Required = append(s.Required, p.Key)
			p.Value = &jsonschema.Schema{
				Description: p.Value.Description, AnyOf: []*jsonschema.Schema{{Type: "number"}, {Type: "null"}},
			}
		default:
			s.Required = append(s.Required, p.Key)
			strict(p.Value)
		}
		if p.Key == "scale" {
			p.Value.Enum = []any{"", "F", "C", "gas"}
		}
		p = next
	}
}

// suitsStrictModes holds a schema against the rules that servers with strict schemas share.
func suitsStrictModes(t *testing.T, data []byte) {
	t.Helper()
	var root map[string]any
	check.OK(t, json.Unmarshal(data, &root))
	objects := 0
	var walk func(path string, s map[string]any)
	walk = func(path string, s map[string]any) {
		for key := range s {
			switch key {
			case "type", "properties", "required", "additionalProperties", "items", "description", "enum", "anyOf":
			default:
				t.Errorf("%s has the keyword %s", path, key)
			}
		}
		if items, ok := s["items"].(map[string]any); ok {
			walk(path+"/items", items)
		}
		properties, ok := s["properties"].(map[string]any)
		if !ok {
			return
		}
		objects++
		required, _ := s["required"].([]any)
		check.That(t, s["additionalProperties"] == false && len(required) == len(properties),
			"%s: additionalProperties %v, %d of %d members required", path, s["additionalProperties"], len(required), len(properties))
		for name, property := range properties {
			walk(path+"/"+name, property.(map[string]any)) //nolint:forcetypeassert // else the test has failed
		}
	}
	walk("", root)
	check.That(t, objects == 6, "%d objects: recipe, ingredient, step, duration, temperature and times", objects)
}
