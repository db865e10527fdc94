package strictjson_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	json2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/strictjson"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMembersKeepBytes(t *testing.T) {
	t.Parallel()
	object := []byte(" {\"a\" : [1, {\"b\":\"]}\"}] ,\n\"\\u0062\":-1.50e+3,\"c\":{ },\"d\":\"\\\"}\\\\\",\"e\":null\t}")
	problem := strictjson.Check(object, strictjson.MaxDepth)
	check.Require(t, problem == nil, "%v", problem)
	var got []string
	for _, member := range strictjson.Members(object) {
		got = append(got, string(member.Name())+" "+string(member.RawName)+" "+string(member.Value))
	}
	want := []string{`a "a" [1, {"b":"]}"}]`, `b "\u0062" -1.50e+3`, `c "c" { }`, `d "d" "\"}\\"`, `e "e" null`}
	check.Equal(t, got, want)
	check.That(t, strictjson.Members([]byte("[1]")) == nil && strictjson.Members([]byte(" ")) == nil, "split a value of another type")
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, `"k%d":0,`, i)
	}
	deep := strings.Repeat(`[{"a":`, strictjson.MaxDepth/2) + `[]` + strings.Repeat("}]", strictjson.MaxDepth/2)
	flat := `[` + strings.Repeat(`{"a\"[[":["\\",{}]},`, strictjson.MaxDepth) + `"]}"]`
	for _, test := range []struct{ body, path string }{
		{`{"a":1,"a":2}`, "/a"},
		{`{"a":1,"\u0061":2}`, "/a"},
		{`[0,{"x/y":{"~":[{"k":1,"k":1}]}}]`, "/1/x~1y/~0/0/k"},
		{`{"` + strings.Repeat("é", 100) + `":[{"k":1,"k":1}]}`, "/" + strings.Repeat("é", 32) + "…/0/k"},
		{`{` + many.String() + `"k3":1}`, "/k3"},
		{`{` + many.String() + `"k98":1}`, "/k98"},
		{deep, ""},
		{strings.Repeat("[", strictjson.MaxDepth+1), ""},
		{strings.ReplaceAll(deep, `"a"`, `"]}\"]}\\"`), ""},
		{`{"a":1}x`, ""},
		{`{"a":1} {"a":1}`, ""},
		{` `, ""},
		{"\"\xff\"", ""},
		{"\"\x1f\"", ""},
		{"1\x00", ""},
		{`[1,]`, ""},
		{`[-]`, ""},
		{`"\u12g4"`, ""},
	} {
		problem := strictjson.Check([]byte(test.body), strictjson.MaxDepth)
		check.That(t, problem != nil && problem.Path == test.path, "%.40s: got %+v, want a problem at %q", test.body, problem, test.path)
	}
	for _, body := range []string{`{` + many.String() + `"k":1}`, `{}`, `[]`, ` 1 `, `""`, `{"a":{"a":{"a":1}},"b":{"a":1}}`, strings.Replace(deep, "[]", "0", 1), flat} {
		problem := strictjson.Check([]byte(body), strictjson.MaxDepth)
		check.That(t, problem == nil, "%s: %+v", body, problem)
	}
}

func TestPickReadsNoFurtherThanItHasTo(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]string{
		`{"a":"x","n":{"b":0},"b":[1, 2],"c":0}`: `"x" [1, 2]`, `{"b":1,"\u0061":2,]`: `2 1`, ` { "a" : 1 } `: `1 `, `{}`: ` `,
		`{"a":1,"b"`: "error", `{"a":1,"b":`: "error", `["a"]`: "error", ``: "error", `{"`: "error", `{"a":"`: "error", `{a:1}`: "error",
	} {
		var values [2][]byte
		err := strictjson.Pick(values[:], []byte(object), "a", "b")
		got := "error"
		if err == nil {
			got = string(values[0]) + " " + string(values[1])
		}
		check.That(t, got == want, "%s: got %s, want %s", object, got, want)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type inner struct {
	N int8 `json:"n"`
}

type outer struct {
	Bytes  []byte  `json:"bytes"`
	Flag   bool    `json:"flag"`
	Float  float64 `json:"float"`
	Hidden string  `json:"-"`
	In     *inner  `json:"in"`

	List []inner `json:"list"`

	Map  map[string]string `json:"map"`
	Name string
	Raw  json.RawMessage `json:"raw"`
	Time time.Time       `json:"time"`
}

func decode(t *testing.T, body string) (outer, []strictjson.Problem) {
	t.Helper()
	var value outer
	problems, problem := strictjson.Unmarshal([]byte(body), &value, strictjson.NewRules(func(r *strictjson.Report) *json2.Unmarshalers {
		return strictjson.AtMost(r, 2, func(dec *jsontext.Decoder, dst *inner) error { return json2.UnmarshalDecode(dec, dst) })
	}))
	check.Require(t, problem == nil, "%v", problem)
	return value, problems
}

func TestUnmarshalFills(t *testing.T) {
	t.Parallel()
	got, problems := decode(t, `{"bytes":"AAE=","flag":true,"float":1e2,"in":{"n":-3},"list":[{"n":1}],"map":{"a":"b"},"Name":"x","raw":{ "k":1.0},"time":"2026-02-03T12:00:00Z","Hidden":"no","unknown":[]}`)
	want := outer{
		Bytes: []byte{0, 1}, Flag: true, Float: 100, In: &inner{-3}, List: []inner{{1}}, Map: map[string]string{"a": "b"}, Name: "x",
		Raw: json.RawMessage(`{ "k":1.0}`), Time: time.Date(2026, 2, 3, 12, 0, 0, 0, time.UTC),
	}
	diff := cmp.Diff(want, got)
	check.That(t, diff == "" && len(problems) == 0, "%v -want +got\n%s", problems, diff)
	got, problems = decode(t, `{"bytes":null,"flag":null,"in":null,"list":null,"map":null,"Name":null,"time":null,"name":"other"}`)
	check.That(t, len(problems) == 0 && cmp.Equal(got, outer{}), "null: got %+v, %v", got, problems)
}

func TestUnmarshalReportsAll(t *testing.T) {
	t.Parallel()
	_, problems := decode(t, `{"bytes":"%","flag":0,"float":"1","in":[],"list":[{"n":""},{"n":2},{"n":3}],"map":{"a":1,"b/c":[]},"Name":{},"time":"noon"}`)
	want := []strictjson.Problem{
		{Path: "/bytes", Text: "must be a string in base64"},
		{Path: "/flag", Text: "must be a boolean, got a number"},
		{Path: "/float", Text: "must be a number, got a string"},
		{Path: "/in", Text: "must be an object, got an array"},
		{Path: "/list", Text: "has 3 items, at most 2"},
		{Path: "/map/a", Text: "must be a string, got a number"},
		{Path: "/map/b~1c", Text: "must be a string, got an array"},
		{Path: "/Name", Text: "must be a string, got an object"},
		{Path: "/time", Text: "must be a string with an RFC 3339 time such as 2026-02-03T12:00:00Z"},
	}
	check.Equal(t, problems, want)
	_, problems = decode(t, `{"in":{"n":128},"list":[{"n":""},{"n":1.5}],"map":[],"raw":null,"time":5}`)
	want = []strictjson.Problem{
		{Path: "/in/n", Text: "must be a whole number, got a number that does not fit"},
		{Path: "/list/0/n", Text: "must be a whole number, got a string"},
		{Path: "/list/1/n", Text: "must be a whole number, got a number that does not fit"},
		{Path: "/map", Text: "must be an object, got an array"},
		{Path: "/time", Text: "must be a string with an RFC 3339 time such as 2026-02-03T12:00:00Z, got a number"},
	}
	check.Equal(t, problems, want)
}
