package contracts_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// FuzzRestaurant: each accepted restaurant is written byte for byte as it came (but for white space between members),
// and a state can be written into it and read back without touching anything else.
func FuzzRestaurant(f *testing.F) {
	for _, seed := range []string{
		`{"placeId":"p","name":"n"}`,
		`{"placeId":"p","name":"n","wolt":{"status":"PENDING","url":null},"providers":{"wolt":{"status":"FOUND","url":"https://x.example"}}}`,
		`{"x":[1e400,-0,{"\u0041":"<"}],"name":"\ud83c\udf55","placeId":"\u0000","location":{"lat":1.50,"lng":-2}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		body := append(append([]byte(`{"results":[`), raw...), `]}`...)
		req, err := contracts.Decode[contracts.EnrichRequest](body)
		if err != nil || len(req.Results) != 1 {
			return
		}
		first, err := contracts.Encode(req)
		if err != nil {
			t.Fatal(err)
		}
		if compact(t, first) != compact(t, body) {
			t.Errorf("%s\nbecame\n%s", body, first)
		}
		r := req.Results[0]
		r.SetState(contracts.ProviderWolt, contracts.NotFoundState(), true)
		again := decodeOne(t, appendJSON(t, r))
		if state, ok := again.State(contracts.ProviderWolt); !ok || state.Status != contracts.StatusNotFound {
			t.Errorf("state %+v, %v", state, ok)
		}
		if diff := cmp.Diff(others(t, raw), others(t, []byte(appendJSON(t, again)))); diff != "" {
			t.Errorf("-before +after\n%s", diff)
		}
	})
}

// compact removes white space and nothing else.
func compact(t *testing.T, raw []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// others returns the members that SetState must not touch.
func others(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	rest := make(map[string]string)
	for name, value := range all {
		if name != "wolt" && name != "providers" {
			rest[name] = compact(t, value)
		}
	}
	return rest
}
