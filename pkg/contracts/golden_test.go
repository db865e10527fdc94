package contracts_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// recoders decode and encode each type of the golden corpus. A type never leaves this list, nor a file the corpus.
var recoders = map[string]func([]byte) ([]byte, error){
	"dead-letter": func(data []byte) ([]byte, error) {
		letter, err := contracts.DecodeDeadLetter(data)
		if err != nil {
			return nil, err
		}
		return json.Marshal(letter)
	},
	"enrich-job":      recode[contracts.EnrichJob],
	"enrich-request":  recode[contracts.EnrichRequest],
	"enrich-response": recode[contracts.EnrichResponse],
	"enrich-result":   recode[contracts.EnrichResult],
	"event":           recode[contracts.Event],
	"import-job":      recode[contracts.ImportJob],
	"import-status":   recode[contracts.ImportStatus],
	"notification":    recode[contracts.Notification],
	"provider-state":  recode[contracts.ProviderState],
	"recipient":       recode[contracts.Recipient],
	"restaurant":      recode[contracts.Restaurant],
	"result-patch":    recode[contracts.ResultPatch],
}

func recode[T contracts.Message](data []byte) ([]byte, error) {
	message, err := contracts.Decode[T](data)
	if err != nil {
		return nil, err
	}
	return contracts.Encode(message)
}

// TestGoldenCorpus: every file that an earlier version wrote is still read, and written with the same meaning.
func TestGoldenCorpus(t *testing.T) {
	t.Parallel()
	for name, recode := range recoders {
		files, err := filepath.Glob(filepath.Join("testdata", name, "v*", "*.json"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: no golden files (%v)", name, err)
		}
		for _, file := range files {
			t.Run(name+"/"+filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				golden, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				encoded, err := recode(golden)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(meaning(t, golden), meaning(t, encoded)); diff != "" {
					t.Errorf("-golden +encoded\n%s", diff)
				}
				if name == "restaurant" && compact(t, golden) != compact(t, encoded) {
					t.Errorf("got  %s\nwant %s", compact(t, encoded), compact(t, golden))
				}
			})
		}
	}
}

// meaning is the document without what carries none: order, white space, unknown members of envelopes, which
// readers ignore, and an explicit null in place of an absent member. Numbers are compared digit by digit.
func meaning(t *testing.T, raw []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value map[string]any
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	for name := range value {
		if strings.HasPrefix(name, "traceNote") {
			delete(value, name)
		}
	}
	return value
}

func TestEveryTypeIsInTheCorpus(t *testing.T) {
	t.Parallel()
	for _, name := range contracts.SchemaNames() {
		if recoders[name] == nil {
			t.Errorf("%s has a schema and no golden files", name)
		}
	}
	if got, want := len(contracts.SchemaNames()), len(recoders); got != want {
		t.Errorf("%d schemas, want %d", got, want)
	}
	if _, err := contracts.Schema("../contracts"); !os.IsNotExist(err) && err == nil {
		t.Error("a path was accepted as the name of a schema")
	}
	if raw, err := contracts.Schema("import-job"); err != nil || !strings.Contains(string(raw), contracts.SchemaURI("import-job")) {
		t.Errorf("import-job: %v", err)
	}
}

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
