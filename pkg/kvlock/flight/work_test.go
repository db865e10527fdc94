package flight

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A key that changes loses every result that is stored under it. So none of these may: add to the file, never edit it.
func TestGoldenKeys(t *testing.T) {
	t.Parallel()
	data := check.Must(os.ReadFile("testdata/keys.json"))(t)
	var golden []struct {
		Name    string `json:"name"`
		Process string `json:"process"`
		Version string `json:"version"`
		JobID   string `json:"jobId"`
		Inputs  string `json:"inputs"`
		Text    string `json:"text"` // the bytes that are hashed
		Key     string `json:"key"`
	}
	check.OK(t, json.Unmarshal(data, &golden))
	check.Require(t, len(golden) >= 20, "%d golden keys", len(golden))
	for _, g := range golden {
		w := Work{Process: g.Process, Version: g.Version, JobID: g.JobID, Inputs: json.RawMessage(g.Inputs)}
		text, err := w.text()
		check.That(t, err == nil && string(text) == g.Text, "%s: hashed\n%s, %v; want\n%s", g.Name, text, err, g.Text)
		key, err := w.Key()
		check.That(t, err == nil && key == g.Key, "%s: key %s, %v; want %s", g.Name, key, err, g.Key)
		sum := sha256.Sum256([]byte(g.Text))
		check.That(t, hex.EncodeToString(sum[:]) == g.Key, "%s: the key in the file is not the hash of the text in it", g.Name)
	}
}

type shape struct {
	Distance float64         `json:"distance"`
	Geometry json.RawMessage `json:"geometry"`
	Since    time.Time       `json:"since,omitzero"`
}

func TestEqualWorks(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for name, works := range map[string][]Work{
		"a struct, a map and two texts": {
			{Process: "p", Inputs: shape{Distance: 100, Geometry: json.RawMessage(`[1.0, 2]`), Since: since}},
			{Process: "p", Inputs: map[string]any{"since": since, "geometry": []int{1, 2}, "distance": 1e2}},
			{Process: "p", Inputs: json.RawMessage("\n{\"since\" : \"2026-01-02T03:04:05.000000006Z\", \"geometry\":[1,2e0],\"distance\":100.0}")},
			{Process: "p", Inputs: json.RawMessage(`{"\u0064istance":1E2,"geometry":[10e-1,2],"since":"2026-01-02T03:04:05.000000006Z"}`)},
		},
		"nothing": {{Process: "p"}, {Process: "p", Inputs: json.RawMessage(nil)}, {Process: "p", Inputs: json.RawMessage(" null ")}, {Process: "p", Inputs: (*shape)(nil)}},
	} {
		want, err := works[0].Key()
		check.That(t, err == nil && len(want) == 64 && strings.Trim(want, "0123456789abcdef") == "" && kv.CheckKey(want) == nil,
			"%s: got %q, %v", name, want, err)
		for _, w := range works[1:] {
			check.Same(t, name, check.Must(w.Key())(t), want)
		}
	}
}

func TestDifferentWorks(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	seen := map[string]Work{}
	for _, w := range []Work{
		{Process: "p"},
		{Process: "q"},
		{Process: "p", Version: "1"},
		{Process: "p1"},
		{Process: "p", JobID: "1"},
		{Process: "p", Version: "1", JobID: "1"},
		{Process: "p", Version: "11"},
		{Process: "p", JobID: "11"},
		{Process: "p", JobID: "null"},
		{Process: `p",1,"`},
		{Process: `p"`, Version: `,1,"`},
		{Process: "p", Inputs: "1"},
		{Process: "p", Inputs: 1},
		{Process: "p", Inputs: "null"},
		{Process: "p", Inputs: []any{}},
		{Process: "p", Inputs: map[string]int{}},
		{Process: "p", Inputs: []int{1, 2}},
		{Process: "p", Inputs: []int{12}},
		{Process: "p", Inputs: []int{2, 1}},
		{Process: "p", Inputs: [][]int{{1, 2}}},
		{Process: "p", Inputs: [][]int{{1}, {2}}},
		{Process: "p", Inputs: int64(1 << 53)},
		{Process: "p", Inputs: int64(1<<53 + 1)},
		{Process: "p", Inputs: raw("9007199254740993.5")},
		{Process: "p", Inputs: raw("0.1")},
		{Process: "p", Inputs: math.MaxFloat64},
		{Process: "p", Inputs: true},
		{Process: "p", Inputs: "é"},
		{Process: "p", Inputs: "e\u0301"}, // looks the same, and is not
		{Process: "p", Inputs: "\ufffd"},
		{Process: "p", Inputs: `\ufffd`},
		{Process: "p", Inputs: map[string]any{"a": nil}},
		{Process: "p", Inputs: map[string]string{"a": "1", "b": "2"}},
		{Process: "p", Inputs: map[string]string{"a": "2", "b": "1"}},
	} {
		key, err := w.Key()
		check.That(t, err == nil, "%+v: %v", w, err)
		other, twice := seen[key]
		check.That(t, !twice, "%+v and %+v have the same key", w, other)
		seen[key] = w
	}
}

func TestWorksWithoutAKey(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]Work{
		"no process":          {Inputs: 1},
		"process not UTF-8":   {Process: "\xff"},
		"version not UTF-8":   {Process: "p", Version: "\xff"},
		"job not UTF-8":       {Process: "p", JobID: "\xff"},
		"input not UTF-8":     {Process: "p", Inputs: []string{"\xff"}},
		"NaN":                 {Process: "p", Inputs: math.NaN()},
		"beyond a float64":    {Process: "p", Inputs: json.RawMessage("1e400")},
		"infinity":            {Process: "p", Inputs: shape{Distance: math.Inf(1), Geometry: json.RawMessage("1")}},
		"duplicate names":     {Process: "p", Inputs: json.RawMessage(`{"a":1,"a":1}`)},
		"two values":          {Process: "p", Inputs: json.RawMessage("1,2")},
		"out of the array":    {Process: "p", Inputs: json.RawMessage("1],[2")},
		"nothing":             {Process: "p", Inputs: json.RawMessage{}},
		"a channel":           {Process: "p", Inputs: make(chan int)},
		"a function's result": {Process: "p", Inputs: marshalFails{}},
	} {
		key, err := w.Key()
		check.That(t, errors.Is(err, ErrInvalidInputs), "%s: got %q, %v; want ErrInvalidInputs", name, key, err)
	}
	_, err := Work{Process: "p", Inputs: marshalFails{}}.Key()
	check.That(t, errors.Is(err, errMarshal), "the cause is gone: %v", err)
}

var errMarshal = errors.New("out of shape")

type marshalFails struct{}

func (marshalFails) MarshalJSON() ([]byte, error) { return nil, errMarshal }

// Two works have the same key only if they are the same.
func FuzzWork(f *testing.F) {
	f.Add("p", "", "", `{"a":1}`, "p", "", "", `{"a":1.0}`)
	f.Add("p", "1", "", `null`, "p1", "", "", `null`)
	f.Add("p", "", "null", `0`, "p", "", "", `-0`)
	f.Fuzz(func(t *testing.T, process, version, job, inputs, process2, version2, job2, inputs2 string) {
		a := Work{Process: process, Version: version, JobID: job, Inputs: json.RawMessage(inputs)}
		b := Work{Process: process2, Version: version2, JobID: job2, Inputs: json.RawMessage(inputs2)}
		keyA, errA := a.Key()
		keyB, errB := b.Key()
		if errA != nil || errB != nil {
			return
		}
		var x, y any
		if err := errors.Join(json.Unmarshal([]byte(inputs), &x), json.Unmarshal([]byte(inputs2), &y)); err != nil {
			return // a number beyond a double
		}
		same := process == process2 && version == version2 && job == job2 && reflect.DeepEqual(x, y)
		check.That(t, keyA != keyB || same, "%+v and %+v have the same key", a, b)
	})
}
