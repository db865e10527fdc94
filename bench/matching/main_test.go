package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every pair of a file counts once, whatever its columns are called.
func TestPairsAreCounted(t *testing.T) {
	t.Parallel()
	const cafe, bar = `{"title": "Café Central", "full_address": "Herrengasse 14", "town": "Wien", "tel": 4315333763}`,
		`{"name": "Loos Bar", "addr": "Kärntner Durchgang 10", "city": "Wien", "phone": "+43 1 5123283"}`
	lines := `{"label": 1, "left": ` + cafe + `, "right": ` + cafe + `}
{"label": 0, "left": ` + cafe + `, "right": ` + bar + `}
{"label": 1, "left": ` + bar + `, "right": ` + cafe + `}
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pairs-valid.jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &printer{Builder: &strings.Builder{}, list: true}
	r, err := measure(p, dir)
	if err != nil || len(r.Pairs) != len(fieldSets) {
		t.Fatalf("%v, %+v", err, r)
	}
	s := r.Pairs[0]
	if s.Pairs != 3 || s.Matches != 2 || s.Wrong != 0 || s.Missed != 1 || s.Precision != 1 || s.Recall != 0.5 || s.LogLoss <= 1 {
		t.Errorf("%+v", s)
	}
	if text := p.String(); !strings.Contains(text, "missed    Loos Bar | Kärntner Durchgang 10 | Wien | +43 1 5123283  #  Café Central") {
		t.Errorf("the missed pair is not listed:\n%s", text)
	}
}
