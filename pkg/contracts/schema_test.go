package contracts_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/contracts/internal/render"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// compile returns the validator of a schema, as a user of the embedded files would make it.
func compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	raw := check.Must(contracts.Schema(name))(t)
	document := check.Must(jsonschema.UnmarshalJSON(bytes.NewReader(raw)))(t)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	check.OK(t, compiler.AddResource(render.URI(name), document))
	return check.Must(compiler.Compile(render.URI(name)))(t)
}

func validate(t *testing.T, schema *jsonschema.Schema, body string) error {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	check.Require(t, err == nil, "%s: %v", body, err)
	return schema.Validate(document)
}

// pathsOf returns the places that a schema complains about, as JSON Pointers. A missing member is at its parent.
func pathsOf(err error) []string {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil
	}
	paths := []string{pointer(invalid.InstanceLocation)}
	for _, cause := range invalid.Causes {
		paths = append(paths, pathsOf(cause)...)
	}
	return paths
}

func pointer(location []string) string {
	var b strings.Builder
	for _, token := range location {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return b.String()
}

// bad are inputs that both the schema and Decode refuse, at the same place.
var bad = map[string][]struct{ body, path string }{
	"provider-state": {
		{`{"status":"MAYBE","url":null}`, "/status"},
		{`{"status":"FOUND","url":null}`, "/url"},
		{`{"status":"FOUND","url":"ftp://x.example"}`, "/url"},
		{`{"status":"FOUND","url":"/relative"}`, "/url"},
		{`{"status":"NOT_FOUND","url":"https://x.example"}`, "/url"},
		{`{"status":"PENDING","url":null,"reason":"a b"}`, "/reason"},
		{`{"status":"PENDING","url":null,"updatedAt":"yesterday"}`, "/updatedAt"},
	},
	"restaurant": {
		{`{"placeId":"","name":"n"}`, "/placeId"},
		{`{"placeId":5,"name":"n"}`, "/placeId"},
		{`{"placeId":"p","name":" "}`, "/name"},
		{`{"placeId":"` + strings.Repeat("x", 321) + `","name":"n"}`, "/placeId"},
		{`{"placeId":"p","name":"n","location":[]}`, "/location"},
		{`{"placeId":"p","name":"n","location":{"lat":90.1,"lng":0}}`, "/location/lat"},
		{`{"placeId":"p","name":"n","providers":[]}`, "/providers"},
		{`{"placeId":"p","name":"n","providers":{"x":1}}`, "/providers/x"},
		{`{"placeId":"p","name":"n","wolt":"FOUND"}`, "/wolt"},
		{`{"placeId":"p","name":"n","phone":3}`, "/phone"},
	},
	"enrich-request": {
		{`{"results":{}}`, "/results"},
		{`{"results":[1]}`, "/results/0"},
		{`{"results":[{"placeId":"p","name":"n"},{"placeId":"","name":"n"}]}`, "/results/1/placeId"},
		{`{"results":[` + strings.TrimSuffix(strings.Repeat(`{"placeId":"p","name":"n"},`, 101), ",") + `]}`, "/results"},
		{`{"results":[],"providers":["a.b"]}`, "/providers/0"},
		{`{"results":[],"waitMs":60001}`, "/waitMs"},
		{`{"results":[],"waitMs":-1}`, "/waitMs"},
		{`{"results":[],"waitMs":1.5}`, "/waitMs"},
	},
	"enrich-response": {
		{`{"requestId":"","results":[],"pending":0}`, "/requestId"},
		{`{"requestId":"r","results":[],"pending":-1}`, "/pending"},
		{`{"requestId":"r","results":[],"pending":0,"skipped":"a b"}`, "/skipped"},
	},
	"enrich-job": {
		{`{"provider":"a.b","placeId":"p","requestId":"r","claim":"c","name":"n"}`, "/provider"},
		{`{"provider":"wolt","placeId":"","requestId":"r","claim":"c","name":"n"}`, "/placeId"},
		{`{"provider":"wolt","placeId":"p","requestId":"","claim":"c","name":"n"}`, "/requestId"},
		{`{"provider":"wolt","placeId":"p","requestId":"r","claim":"","name":"n"}`, "/claim"},
		{`{"provider":"wolt","placeId":"p","requestId":"r","claim":"c","name":""}`, "/name"},
		{`{"provider":"wolt","placeId":"p","requestId":"r","claim":"c","name":"n","location":{"lat":0,"lng":181}}`, "/location/lng"},
	},
	"enrich-result": {
		{`{"status":"FOUND","url":null,"updatedAt":"2026-02-03T12:00:00Z"}`, "/url"},
		{`{"status":"NOT_FOUND","url":null,"updatedAt":"x"}`, "/updatedAt"},
		{`{"status":"NOT_FOUND","url":null,"updatedAt":"2026-02-03T12:00:00Z","score":1.1}`, "/score"},
		{`{"status":"NOT_FOUND","url":null,"updatedAt":"2026-02-03T12:00:00Z","outcome":"MAYBE"}`, "/outcome"},
	},
	"result-patch": {
		{`{"type":"PATCH","requestId":"r","placeId":"p","patch":{"providers":{"wolt":{"status":"PENDING","url":null}}}}`, "/type"},
		{`{"type":"RESULT_PATCH","requestId":"r","placeId":"p","patch":{"providers":{}}}`, "/patch/providers"},
		{`{"type":"RESULT_PATCH","requestId":"r","placeId":"p","patch":{"providers":{"wolt":{"status":"FOUND","url":null}}}}`, "/patch/providers/wolt/url"},
		{`{"type":"RESULT_PATCH","requestId":"r","placeId":"","patch":{"providers":{"wolt":{"status":"PENDING","url":null}}}}`, "/placeId"},
	},
	"import-job": {
		{`{"job_id":"../etc","owner_id":"o","url":"https://x.example"}`, "/job_id"},
		{`{"job_id":"a/b","owner_id":"o","url":"https://x.example"}`, "/job_id"},
		{`{"job_id":"a\\b","owner_id":"o","url":"https://x.example"}`, "/job_id"},
		{`{"job_id":"a\u0000b","owner_id":"o","url":"https://x.example"}`, "/job_id"},
		{`{"job_id":"j","owner_id":"","url":"https://x.example"}`, "/owner_id"},
		{`{"job_id":"j","owner_id":"o","url":"file:///etc/passwd"}`, "/url"},
		{`{"job_id":"j","owner_id":"o","url":"--exec=x"}`, "/url"},
		{`{"job_id":"j","owner_id":"o","url":"https://x.example","priority":"urgent"}`, "/priority"},
	},
	"import-status": {
		{`{"status":"DONE"}`, "/status"},
		{`{"status":"RUNNING","attempt":-1}`, "/attempt"},
		{`{"status":"FAILED","code":"a b"}`, "/code"},
	},
	"event": {
		{`{"event_id":"","event_type":"X","aggregate_type":"Y"}`, "/event_id"},
		{`{"event_id":"e","event_type":1,"aggregate_type":"Y"}`, "/event_type"},
		{`{"event_id":"e","event_type":"X","aggregate_type":"Y","occurred_at":"2025"}`, "/occurred_at"},
	},
	"notification": {
		{`{"event_id":"e","user_id":"","recipient_type":"ADMIN","channel":"inapp","event_type":"X","created_at":"2025-01-21T10:15:30Z"}`, "/user_id"},
		{`{"event_id":"e","user_id":"u","recipient_type":"ADMIN","channel":"in app","event_type":"X","created_at":"2025-01-21T10:15:30Z"}`, "/channel"},
		{`{"event_id":"e","user_id":"u","recipient_type":"ADMIN","channel":"push","address":"1","event_type":"X","created_at":"2025-01-21T10:15:30Z"}`, "/address"},
	},
	"recipient": {
		{`{"user_id":"u","recipient_type":"ADMIN","endpoints":{"push":{"phone":{"address":5}}}}`, "/endpoints/push/phone/address"},
		{`{"user_id":"u","recipient_type":"ADMIN","endpoints":{"push":{"phone":{"address":"x","generation":-1}}}}`, "/endpoints/push/phone/generation"},
	},
}

func TestSchemaAndDecodeRefuseTheSame(t *testing.T) {
	t.Parallel()
	for name, inputs := range bad {
		schema := compile(t, name)
		for _, input := range inputs {
			got := pathsOf(validate(t, schema, input.body))
			check.That(t, slices.Contains(got, input.path), "%s: %.120s: the schema complains about %q, want %s", name, input.body, got,
				input.path)
			err := check.Err(recoders[name]([]byte(input.body)))
			check.That(t, failsAt(err, input.path), "%s: %.120s: Decode says %v, want %s", name, input.body, err, input.path)
		}
	}
}

// TestSchemaAndDecodeRequireTheSame takes each member out of a golden file in turn.
func TestSchemaAndDecodeRequireTheSame(t *testing.T) {
	t.Parallel()
	for name, required := range map[string]struct{ golden, members string }{
		"enrich-job":      {"minimal", "provider placeId requestId claim name"},
		"enrich-request":  {"minimal", "results"},
		"enrich-response": {"skipped", "requestId results pending"},
		"enrich-result":   {"cache-entry", "status url updatedAt"},
		"event":           {"minimal", "event_id event_type aggregate_type"},
		"import-job":      {"three-members", "job_id owner_id url"},
		"import-status":   {"running", "status"},
		"notification":    {"minimal", "event_id user_id recipient_type channel event_type created_at"},
		"provider-state":  {"found", "status url"},
		"result-patch":    {"migrated", "type requestId placeId patch"},
	} {
		schema := compile(t, name)
		golden := check.Must(os.ReadFile(filepath.Join("testdata", name, "v1", required.golden+".json")))(t)
		for member := range strings.FieldsSeq(required.members) {
			body := strings.Replace(string(golden), `"`+member+`"`, `"other"`, 1)
			check.That(t, validate(t, schema, body) != nil, "%s: the schema accepts it without %s", name, member)
			err := check.Err(recoders[name]([]byte(body)))
			check.That(t, failsAt(err, "/"+member), "%s without %s: Decode says %v", name, member, err)
		}
	}
}
