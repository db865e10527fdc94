package fastjson

import (
	"encoding/json"
	"math"
	"testing"
)

// object has a field of each type that is read.
type object struct {
	Text  string `json:"text"`
	Flag  bool   `json:"flag"`
	Count int    `json:"count"`
	Time  int64  `json:"time"`
	Seq   uint64 `json:"seq"`
}

func (o *object) fields() []any {
	return []any{"text", &o.Text, "flag", &o.Flag, "count", &o.Count, "time", &o.Time, "seq", &o.Seq}
}

// The reader without encoding/json reads the same as encoding/json.
func FuzzRead(f *testing.F) {
	for _, line := range []string{
		`{"text":"c","flag":true,"count":30,"time":1763663523123456789,"seq":48211}`, `{"flag":false}`, `{"other":1}`,
		`{}`, `{"count":1}`, `{"count":01}`, `{"count":-1}`, `{"count":1.0}`, `{"count":1e3}`, `{"count":"1"}`, `{"count":true}`, `{"count":}`,
		`{"count":null}`, `{"count":99999999999999999999}`, `{"time":9223372036854775807}`, `{"time":9223372036854775808}`,
		`{"time":9999999999999999999}`, `{"seq":9999999999999999999}`, `{"seq":18446744073709551615}`, `{"seq":18446744073709551616}`,
		`{"Count":1}`, `{"text":null}`, `{"text":"a\u0041"}`, `{"text":"ü"}`, "{\"text\":\"\xff\"}", "{\"text\":\"\x01\"}", `{"text":"a"b"}`,
		`{"text":"a","text":"b"}`, `{"text":"a",}`, `{"text":"a"`, `{"text":"a"}}`, `{"text" :"a"}`, `{ "text":"a"}`, `{"":1}`, `{:1}`, `{,}`,
		`{"flag":tru}`, `{"flag":"true"}`, `{"error":{"code":400},"seq":0}`, ``, `{`, `}`, `"`, `[]`,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var got, want object
		if Read(line, got.fields()) {
			if err := json.Unmarshal([]byte(line), &want); err != nil || got != want {
				t.Errorf("%q read as %+v, not %+v: %v", line, got, want, err)
			}
		}
	})
}

// Numbers as records have them are read without encoding/json, and none that does not fit.
func TestNumbersOfRealRecords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "1763663523123456789": 1763663523123456789, "9223372036854775807": math.MaxInt64} {
		var n int64
		if !setNumber(&n, text) || n != want {
			t.Errorf("%s is read as %d", text, n)
		}
	}
	var n int64
	for _, text := range []string{"9223372036854775808", "9999999999999999999", "10000000000000000000"} {
		if setNumber(&n, text) {
			t.Errorf("%s is read as %d", text, n)
		}
	}
	var seq uint64
	if !setNumber(&seq, "9999999999999999999") || seq != 9999999999999999999 {
		t.Errorf("a sequence of 19 digits is read as %d", seq)
	}
}
