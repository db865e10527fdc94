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
