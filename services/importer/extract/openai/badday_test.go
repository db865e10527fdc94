package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/remotetest"
	"github.com/expediter-io/expediter/services/importer/extract/openai"
	"github.com/expediter-io/expediter/services/importer/internal/remote"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// TestErrors names for each bad answer whether it is worth repeating, when, and the importer's message.
func TestErrors(t *testing.T) {
	t.Parallel()
	const failed, invalid = contracts.CodeExtractionFailed, contracts.CodeInvalidRecipe
	const notJSON = "the answer is not the JSON of a recipe"
	for _, c := range []struct {
		name      string
		answer    http.HandlerFunc
		code      contracts.ImportCode
		retryable bool
		after     time.Duration
		message   string
	}{
		{"refusal", remotetest.Says(`{"choices":[{"message":{"content":null,"refusal":"I'm sorry, I cannot help."},"finish_reason":"stop"}]}`), failed, false, 0, "the model refuses to read the source"},
		{"truncated", remotetest.Says(completion(honest[:200], "length")), failed, false, 0, "the answer was cut off at the limit of tokens"},
		{"truncated, and yet whole", remotetest.Says(completion(honest, "max_tokens")), failed, false, 0, "the answer was cut off at the limit of tokens"},
		{"content filter", remotetest.Says(completion("", "content_filter")), failed, false, 0, "a content filter held the answer back"},
		{"no choices", remotetest.Says(`{"choices":[],"usage":{"prompt_tokens":1}}`), failed, true, 0, "the answer has no choices"},
		{"an error with 200", remotetest.Says(`{"error":{"message":"upstream broke","code":502}}`), failed, true, 0, "it is out of order"},
		{"null", remotetest.Says(`null`), failed, true, 0, "the answer has no choices"},
		{"no content", remotetest.Says(`{"choices":[{"message":{"content":null},"finish_reason":"stop"}]}`), failed, true, 0, "the answer is empty"},
		{"blank content", completes(" \n"), failed, true, 0, "the answer is empty"},
		{"a tool", remotetest.Says(`{"choices":[{"message":{"content":null,"tool_calls":[{}]},"finish_reason":"tool_calls"}]}`), failed, true, 0, "the answer is empty"},
		{"a page", remotetest.Says("<html>gateway"), failed, true, 0, "the answer is not a chat completion"},
		{"empty", remotetest.Says(""), failed, true, 0, "the answer is not a chat completion"},
		{"half", remotetest.Says(completion(honest, "stop")[:100]), failed, true, 0, "the answer is not a chat completion"},
		{"prose", completes("I could not find a recipe."), failed, true, 0, notJSON},
		{"half an object", completes(honest[:200]), failed, true, 0, notJSON},
		{"two recipes", completes(honest + "\nor\n" + honest), failed, true, 0, notJSON},
		{"nothing but braces", completes(strings.Repeat("{", 1<<19)), failed, true, 0, notJSON},
		{"brackets", completes("} and {"), failed, true, 0, notJSON},
		{"wrong types", completes(`{"title":7,"steps":"none"}`), failed, true, 0, notJSON},
		{"a list", completes("[" + honest + "," + honest + "]"), failed, true, 0, notJSON},
		{"no recipe", completes(`{"title":"A walk","ingredients":[],"steps":[]}`), failed, false, 0, "no recipe was found in the source"},
		{"no steps", completes(`{"title":"Pancakes","ingredients":[{"item":"flour"}],"steps":[]}`), invalid, false, 0, ""},
		{"no title", completes(strings.Replace(honest, "Pancakes", " ", 1)), invalid, false, 0, ""},
		{"400", refuses(400, `{"error":{"message":"no such model as sk-s3cr3tKey","type":"invalid_request_error","param":"model","code":null}}`), failed, false, 0, "it does not take such a call (HTTP 400)"},
		{"400 too long", refuses(400, `{"error":{"code":"context_length_exceeded"}}`), failed, false, 0, "the source is too long for the model"},
		{"429 for good", refuses(429, `{"error":{"code":"insufficient_quota"}}`, "Retry-After", "20"), failed, true, 0, "the account has no quota left"},
		{"500 that speaks of formats", refuses(500, `response_format`), failed, true, 0, "it is out of order (HTTP 500)"},
		{"no format at all", refuses(400, `response_format`), failed, false, 0, "it does not take such a call (HTTP 400)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, e := setup(t, c.answer)
			_, err := e.Extract(t.Context(), pancakes())
			message := "AI extraction failed: " + c.message
			if c.code == invalid {
				message = "Invalid recipe data from AI"
			}
			want := &extract.Error{Code: c.code, Retryable: c.retryable, RetryAfter: c.after, Message: message}
			remotetest.Fails(t, err, want, key, "Whisk")
		})
	}
}

// TestErrorsNameTheCodesOfTheServer so that a person can look them up, and nothing else that it says.
func TestErrorsNameTheCodesOfTheServer(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"error":{"message":"Whisk","type":"invalid_request_error","param":"max_completion_tokens","code":"unsupported_parameter"}}`: "HTTP 400: invalid_request_error, unsupported_parameter, max_completion_tokens",
		`{"error":{"type":"a sentence, Whisk","param":["x"],"code":400}}`:                                                             "HTTP 400",
		`{"error":"Whisk"}`: "HTTP 400",
		`Whisk`:             "HTTP 400",
	} {
		_, e := setup(t, refuses(400, body))
		_, err := e.Extract(t.Context(), pancakes())
		check.That(t, err != nil && strings.HasSuffix(err.Error(), want), "%s: %v", body, err)
		remotetest.Discreet(t, err, key, "Whisk")
	}
	// A key that looks like a code is none.
	_, e := setup(t, refuses(400, `{"error":{"code":"my_key","echo":""}}`), func(c *openai.Config) { c.Token = "my_key" })
	_, err := e.Extract(t.Context(), pancakes())
	check.That(t, err != nil && !strings.Contains(err.Error(), "my_key"), "%v", err)
}

func TestConfigErrorsAreNamedTogether(t *testing.T) {
	t.Parallel()
	_, err := openai.New(openai.Config{})
	check.That(t, err != nil && strings.Contains(err.Error(), "BaseURL is") && strings.Contains(err.Error(), "a Model is"), "%v", err)
}

// FuzzAnswer feeds anything in place of a model's answer: the result is a valid recipe, or an error.
func FuzzAnswer(f *testing.F) {
	f.Add(honest)
	f.Add("```json\n{}\n```")
	f.Add("{a} " + honest + " {b: {}}")
	f.Add(`{"title":"x","ingredients":[{"qty":1e400,"item":"\u0000"}],"steps":[{"text":"a","timestamp_sec":-1e300}]}`)
	var content string
	answer := direct(func(*http.Request) string { return completion(content, "stop") })
	made := check.Must(openai.New(openai.Config{Config: remote.Config{BaseURL: "http://localhost", Transport: answer}, Model: "cook-1"}))(f)
	e := extract.Checked(made)
	f.Fuzz(func(t *testing.T, text string) {
		content = text
		r, err := e.Extract(t.Context(), pancakes())
		if err != nil {
			check.That(t, extract.Failure(err) != nil, "%v", err)
			return
		}
		check.Is(t, r.Validate(), nil)
	})
}

func TestConforms(t *testing.T) {
	t.Parallel()
	remotetest.Conform(t, func(ctx context.Context, t *testing.T, url string, timeout time.Duration) error {
		t.Helper()
		e, err := openai.New(openai.Config{Config: remote.Config{BaseURL: url, Token: key, Timeout: timeout}, Model: "cook-1"})
		check.OK(t, err)
		_, err = e.Extract(ctx, pancakes())
		return err
	}, key, "Whisk")
}

var update = flag.Bool("update", false, "write the golden files anew")

// absent are members that no model fills in: they are known without it, or found in the source alone.
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
	want := check.Must(os.ReadFile(file))(t)
	check.Equal(t, string(want), got.String())
	suitsStrictModes(t, want)
}

// strict brings a schema into the form that strict modes ask for: every member required, no others allowed, and no keyword
// that only some servers know. A member that the source does not have is an empty text, 0 or an empty list; only times can
// be null.
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
