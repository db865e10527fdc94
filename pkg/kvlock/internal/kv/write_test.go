package kv

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/fastjson"
)

// What is read without encoding/json is what encoding/json reads.
func FuzzAcknowledgement(f *testing.F) {
	for _, line := range []string{
		`{"stream":"KV_b", "seq":7}`, `{"stream":"KV_b","seq":7}`, `{"stream":"KV_b","domain":"d","seq":7,"duplicate":true}`,
		`{"error":true,"seq":7}`, `{"error":{"code":400},"stream":"KV_b","seq":0}`, `{"seq":7,"batch":"x","count":3}`, `{"domain":1}`,
		`{"duplicate":"no"}`, `{"seq":18446744073709551615}`, `{"seq":-1}`,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var a, want acknowledgement
		if fastjson.Members(line, a.set) {
			if err := json.Unmarshal([]byte(line), &want); err != nil || !reflect.DeepEqual(a, want) {
				t.Errorf("%q read as %+v, not %+v: %v", line, a, want, err)
			}
		}
	})
}
