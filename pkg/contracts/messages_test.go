package contracts_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/contracts/internal/render"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// described is the part of the descriptions of messages that these tests read.
type described struct {
	Channels map[string]struct {
		Address string `json:"address"`
		Library bool   `json:"x-library"`
		Stream  string `json:"x-stream"`
	} `json:"channels"`
	Components struct {
		MessageTraits map[string]struct {
			Headers struct {
				Properties map[string]any `json:"properties"`
			} `json:"headers"`
		} `json:"messageTraits"`
	} `json:"components"`
}

func descriptions(t *testing.T) (all []described) {
	t.Helper()
	files := check.Must(render.Files(root))(t)
	for path, content := range files {
		if strings.HasSuffix(path, "/asyncapi.json") {
			var d described
			check.OK(t, json.Unmarshal(content, &d))
			all = append(all, d)
		}
	}
	return all
}

var parameter = regexp.MustCompile(`\{[a-zA-Z_]+\}`)

// covers reports whether a filter of subjects selects a subject.
func covers(filter, subject string) bool {
	pattern := regexp.QuoteMeta(filter)
	pattern = strings.ReplaceAll(strings.ReplaceAll(pattern, `\*`, `[^.]+`), ">", ".+")
	return regexp.MustCompile("^" + pattern + "$").MatchString(subject)
}

// Every subject of every stream and bucket is described, and every channel is one of the stream that it names.
func TestEveryStreamIsDescribed(t *testing.T) {
	t.Parallel()
	declared := map[string][]string{}
	for _, config := range contracts.Assets(contracts.AssetOptions{}) {
		declared[config.Name] = config.Subjects
	}
	found := map[string]bool{}
	for _, d := range descriptions(t) {
		for name, c := range d.Channels {
			if c.Stream == "" {
				continue
			}
			sample := parameter.ReplaceAllString(c.Address, "x")
			at := slices.IndexFunc(declared[c.Stream], func(filter string) bool { return covers(filter, sample) })
			check.Require(t, at >= 0, "channel %s: %s is no subject of stream %s, which has %v", name, c.Address, c.Stream, declared[c.Stream])
			found[declared[c.Stream][at]] = true
		}
	}
	for name, subjects := range declared {
		for _, subject := range subjects {
			check.That(t, found[subject], "no channel is on %s of stream %s", subject, name)
		}
	}
}

// must returns a subject.
func must(subject string, err error) string {
	if err != nil {
		panic(err)
	}
	return subject
}

// Every function that makes a subject makes one that is described, and so are all streams' subjects made.
func TestEverySubjectIsDescribed(t *testing.T) {
	t.Parallel()
	row := contracts.Notification{EventID: "e", UserID: "u", RecipientType: "CUSTOMER", Channel: "push"}
	one := row
	one.Address = "phone"
	made := map[string][]string{
		"AuditSubject":      {must(contracts.AuditSubject("cli", "cancel"))},
		"EnrichJobSubject":  {must(contracts.EnrichJobSubject("wolt", "p.1"))},
		"EventSubject":      {must(contracts.EventSubject("a", "b"))},
		"ImportJobSubject":  {must(contracts.ImportJobSubject("high", "j"))},
		"NotifyPageSubject": {must(contracts.NotifyPageSubject("e", "a", 0))},
		"NotifyPlanSubject": {must(contracts.NotifyPlanSubject("e"))},
		"NotifySendSubject": {must(contracts.NotifySendSubject("push", "CUSTOMER", "u", "e"))},
		"ReplaySubject":     {must(row.ReplaySubject(1)), must(one.ReplaySubject(1))},
		"RepublishSubject":  {contracts.RepublishSubject("inbox", "x")},
		"Subject":           {must(one.Subject()), must(contracts.Event{EventType: "b", Route: []byte("{}")}.Subject())},
		"EnrichVariant":     {contracts.EnrichVariant(must(contracts.EnrichJobSubject("wolt", "p")), 1)},
	}
	for name := range declarations(t, "pkg/contracts") {
		check.That(t, made[name] != nil || !strings.HasSuffix(name, "Subject"), "%s makes a subject that this test does not know", name)
	}
	used := map[string]bool{}
	for name, subjects := range made {
		for _, subject := range subjects {
			found := ""
			for _, d := range descriptions(t) {
				for _, c := range d.Channels {
					filter := parameter.ReplaceAllString(c.Address, "*")
					if strings.HasPrefix(subject, "rp.") {
						filter = strings.Replace(filter, ".*.*", ".*.>", 1)
					}
					if !c.Library && covers(filter, subject) && literals(filter) > literals(found) {
						found = filter
					}
				}
			}
			check.That(t, found != "", "%s: %s is not described", name, subject)
			used[found] = true
		}
	}
	for _, d := range descriptions(t) {
		for name, c := range d.Channels {
			own := c.Stream != "" && !strings.Contains(c.Stream, "_") || c.Stream == contracts.StreamEnrichJobs || c.Stream == contracts.StreamImportJobs
			filter := parameter.ReplaceAllString(c.Address, "*")
			check.That(t, !own || c.Stream == contracts.StreamDead || used[filter], "channel %s: no function makes %s", name, c.Address)
		}
	}
}

func literals(filter string) int { return len(strings.ReplaceAll(filter, "*", "")) }

// Every header that the sources name is described, and every header of ours that is described is named there.
func TestEveryHeaderIsDescribed(t *testing.T) {
	t.Parallel()
	known, named := map[string]bool{}, map[string]bool{}
	for _, d := range descriptions(t) {
		for _, trait := range d.Components.MessageTraits {
			for name := range trait.Headers.Properties {
				known[name] = true
			}
		}
	}
	for name, value := range declarations(t, "pkg", "services") {
		if ours.MatchString(value) && strings.Contains(strings.ToLower(name), "header") {
			named[value] = true
		}
	}
	for name := range named {
		check.That(t, known[name], "header %s is not described", name)
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		check.That(t, named[name] || !ours.MatchString(name), "header %s is described, and no constant is named so", name)
	}
}

// ours are the names of headers that no standard and no server has.
var ours = regexp.MustCompile(`^(Dead|Expediter|Import|Job|Kv|Kvlock)-[A-Za-z-]+$`)

// declarations returns the names of functions and constants in folders and below, with the texts of the constants.
func declarations(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, folder := range folders {
		check.OK(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file := check.Must(parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution))(t)
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Name.IsExported() {
						all[n.Name.Name] = ""
					}
				case *ast.ValueSpec:
					for i, value := range n.Values {
						if literal, ok := value.(*ast.BasicLit); ok && literal.Kind == token.STRING {
							text := check.Must(strconv.Unquote(literal.Value))(t)
							all[path+" "+n.Names[i].Name] = text
						}
					}
				}
				return true
			})
			return nil
		}))
	}
	return all
}

// concealed decodes a message, and removes its personal members.
func concealed(t *testing.T, subject, message string) (text string, hidden []string) {
	t.Helper()
	var value any
	check.OK(t, json.Unmarshal([]byte(message), &value))
	value, hidden = contracts.Conceal(subject, value)
	shown := check.Must(json.Marshal(value))(t)
	return string(shown), hidden
}

func TestConceal(t *testing.T) {
	t.Parallel()
	const person = `{"user_id":"private","recipient_type":"CUSTOMER","addresses":{"email":"private@a.example"},` +
		`"endpoints":{"webhook":{"x":{"address":"https://a.example/private","name":"private"}}},"locale":"he","time_zone":"Asia/Jerusalem"}`
	for _, c := range []struct{ subject, message, shown, hidden string }{
		{
			"events.USER.HELLO", `{"event_id":"e1","user_id":"private","recipients":[` + person + `],"payload":{"name":"Soup","email":"private@a.example",` +
				`"auth_token":"private","to":"write to private@a.example or +972501234567","items":[{"apiKey":"private"}]},"route":{"channels":["email"]}}`,
			`"e1" "Soup" "channels" "write to …"`, "[apiKey auth_token email recipients user_id]",
		},
		{
			"jobs.import.high.j1", `{"job_id":"j1","owner_id":"private","url":"https://u:private@a.example/x?token=private","source_type":"web"}`,
			`"j1" "https://a.example/x" "web"`, "[owner_id]",
		},
		{
			"jobs.enrich.WOLT.p1", `{"provider":"WOLT","placeId":"p1","name":"פיצה","address":"Main St 1","phone":"03-555","claim":"c"}`,
			`"p1" "פיצה" "Main St 1" "03-555"`, "[]",
		}, // those of a place, which everybody may know
		{
			"notify.send.email.CUSTOMER.u.e1", `{"event_id":"e1","user_id":"private","channel":"email","address":"work","recipient":` + person + `}`,
			`"e1" "work"`, "[recipient user_id]",
		},
		{
			"notify.plan.e1", `{"event_id":"e1","recipients":2,"entries":[` + person + `]}`, `"e1" "CUSTOMER" "he" "Asia/Jerusalem"`,
			"[addresses endpoints recipients user_id]",
		},
		{
			"tasks.other", `{"Owner-ID":"private","userId":"private","Cookie":"private","db_password":"private","phone_number":"private","title":"x"}`,
			`"x"`, "[Cookie Owner-ID db_password phone_number userId]",
		},
	} {
		text, hidden := concealed(t, c.subject, c.message)
		for _, secret := range []string{"private", "972501234567"} {
			check.That(t, !strings.Contains(text, secret), "%s shows %s", c.subject, text)
		}
		for want := range strings.SplitSeq(c.shown, `" "`) {
			check.Says(t, text, strings.Trim(want, `"`))
		}
		check.Same(t, "hidden of "+c.subject, fmt.Sprint(hidden), c.hidden)
	}
	text, hidden := concealed(t, "events.x", `[null,{"user_id":null}]`)
	check.Same(t, "nothing to hide", text+fmt.Sprint(hidden), `[null,{"user_id":null}][]`)
}

// In each message that readers accept, personal members are hidden, and the ids of the message stay.
func TestConcealSamples(t *testing.T) {
	t.Parallel()
	for kind, subject := range map[string]string{
		"enrich-job": "jobs.enrich.x.y", "event": "events.x.y", "import-job": "jobs.import.x.y", "notification": "notify.send.a.b.c.d",
	} {
		files := check.Must(filepath.Glob("testdata/" + kind + "/v1/*.json"))(t)
		check.Require(t, len(files) > 0, "no samples of %s", kind)
		for _, file := range files {
			data := check.Must(os.ReadFile(file))(t)
			text, _ := concealed(t, subject, string(data))
			var whole struct {
				Owner string `json:"owner_id"`
				User  string `json:"user_id"`
			}
			check.OK(t, json.Unmarshal(data, &whole))
			for _, name := range []string{whole.Owner, whole.User} {
				check.That(t, name == "" || !strings.Contains(text, fmt.Sprintf("%q", name)), "%s shows its user: %s", file, text)
			}
			check.That(t, !strings.Contains(text, "@"), "%s shows an address: %s", file, text)
		}
	}
}

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
