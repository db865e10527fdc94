package strictjson_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts/internal/strictjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type inner struct {
	N int8 `json:"n" wire:"present"`
}

type outer struct {
	Bytes  []byte  `json:"bytes"`
	Flag   bool    `json:"flag"`
	Float  float64 `json:"float"`
	Hidden string  `json:"-"`
	In     *inner  `json:"in"`

	List []inner `json:"list" wire:"max=2"`

	Map  map[string]string `json:"map"`
	Name string
	Raw  json.RawMessage `json:"raw"`
	Time time.Time       `json:"time"`
}

func decode(t *testing.T, body string) (outer, []strictjson.Problem) {
	t.Helper()
	if problem := strictjson.Check([]byte(body)); problem != nil {
		t.Fatal(problem)
	}
	var (
		value outer
		d     strictjson.Decoder
	)
	d.Value([]byte(body), reflect.ValueOf(&value).Elem())
	return value, d.Problems
}

func TestDecoderFills(t *testing.T) {
	t.Parallel()
	got, problems := decode(t, `{"bytes":"AAE=","flag":true,"float":1e2,"in":{"n":-3},"list":[{"n":1}],"map":{"a":"b"},"Name":"x","raw":{ "k":1.0},"time":"2026-02-03T12:00:00Z","Hidden":"no","unknown":[]}`)
	want := outer{
		Bytes: []byte{0, 1}, Flag: true, Float: 100, In: &inner{-3}, List: []inner{{1}}, Map: map[string]string{"a": "b"}, Name: "x",
		Raw: json.RawMessage(`{ "k":1.0}`), Time: time.Date(2026, 2, 3, 12, 0, 0, 0, time.UTC),
	}
	if diff := cmp.Diff(want, got); diff != "" || len(problems) > 0 {
		t.Errorf("%v -want +got\n%s", problems, diff)
	}
	if got, problems := decode(t, `{"bytes":null,"flag":null,"in":null,"list":null,"map":null,"Name":null,"time":null,"name":"other"}`); len(problems) > 0 || !cmp.Equal(got, outer{}) {
		t.Errorf("null: got %+v, %v", got, problems)
	}
}

func TestDecoderReports(t *testing.T) {
	t.Parallel()
	_, problems := decode(t, `{"bytes":"%","flag":0,"float":"1","in":{},"list":[{"n":1},{"n":2},{"n":3}],"map":{"a":1,"b/c":[]},"Name":{},"time":"noon"}`)
	want := []strictjson.Problem{
		{Path: "/bytes", Text: "must be a string in base64"},
		{Path: "/flag", Text: "must be a boolean, got a number"},
		{Path: "/float", Text: "must be a number, got a string"},
		{Path: "/in/n", Text: "is required"},
		{Path: "/list", Text: "has 3 items, at most 2"},
		{Path: "/map/a", Text: "must be a string, got a number"},
		{Path: "/map/b~1c", Text: "must be a string, got an array"},
		{Path: "/Name", Text: "must be a string, got an object"},
		{Path: "/time", Text: "must be a string with an RFC 3339 time such as 2026-02-03T12:00:00Z"},
	}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	_, problems = decode(t, `{"in":{"n":128},"list":[{"n":null},{"n":1.5}],"map":[],"raw":null,"time":5}`)
	want = []strictjson.Problem{
		{Path: "/in/n", Text: "must be a whole number, got a number that does not fit"},
		{Path: "/list/0/n", Text: "must not be null"},
		{Path: "/list/1/n", Text: "must be a whole number, got a number that does not fit"},
		{Path: "/map", Text: "must be an object, got an array"},
		{Path: "/time", Text: "must be a string with an RFC 3339 time such as 2026-02-03T12:00:00Z, got a number"},
	}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
