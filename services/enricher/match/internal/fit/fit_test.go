package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pairsFile writes a few labelled pairs: matches agree in all fields, the others share a street.
func pairsFile(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	names := []string{"Spago", "Patina", "Matsuhisa", "Granita", "Valentino", "Citrus", "Campanile", "Picholine"}
	for i, n := range names {
		fmt.Fprintf(&b, `{"left":{"name":%q,"addr":"%d Herzl St","city":"Haifa","phone":"04-85512%02d"},"right":{"name":"The %s","addr":"Herzl Street %d","city":"Haifa","phone":"+972 4 85512%02d"},"label":1}`+"\n", n, 10+i, i, n, 10+i, i)
		fmt.Fprintf(&b, `{"left":{"name":%q,"addr":"%d Herzl St","city":"Haifa","phone":"04-85512%02d"},"right":{"name":%q,"addr":"%d Herzl St","city":"Haifa","phone":"04-85599%02d"},"label":0}`+"\n", n, 10+i, i, names[(i+1)%len(names)], 40+i, i)
	}
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	check.OK(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

func TestFitIsDeterministicAndKeepsSigns(t *testing.T) {
	t.Parallel()
	pairs := check.Must(readPairs(pairsFile(t)))(t)
	samples := prepare(pairs)
	w := fit(samples)
	check.Equal(t, w, fit(prepare(pairs)))
	for j, p := range priors {
		check.That(t, !(float64(p.sign)*w[j] < 0), "%s weighs %v", p.name, w[j])
		check.That(t, !strings.HasPrefix(p.name, "geo.") || !(math.Abs(w[j]-p.mean) > 1e-9),
			"%s was never observed and moved from %v to %v", p.name, p.mean, w[j])
	}
	for _, s := range samples {
		if s.plain && (logOdds(w, s) > 0) != (s.label == 1) {
			t.Errorf("a plain pair with label %v has log-odds %.2f", s.label, logOdds(w, s))
		}
	}
}

// TestSignsHoldAgainstTheData fits pairs in which a telephone that agrees speaks against a match.
func TestSignsHoldAgainstTheData(t *testing.T) {
	t.Parallel()
	base, same := -1, -1
	for j, p := range priors {
		switch p.name {
		case baseName:
			base = j
		case "phone.same":
			same = j
		}
	}
	var samples []sample
	for range 400 {
		samples = append(samples,
			sample{values: map[int]float64{base: 1, same: 1}, label: 0, weight: 1},
			sample{values: map[int]float64{base: 1}, label: 1, weight: 1})
	}
	check.Same(t, "phone.same weighs", fit(samples)[same], 0)
}

func TestOutputHasEveryWeight(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weights.tsv")
	check.OK(t, run([]string{"-write", path, pairsFile(t)}, io.Discard))
	inUse := check.Rows(t, "../../weights.tsv")
	for i, row := range check.Rows(t, path) {
		check.That(t, len(row) == 2 && row[0] == inUse[i][0], "row %d is %q, and %q of the weights in use", i+1, row, inUse[i])
	}
}

// TestEveryFeatureHasAPrior looks at all features that an observation can have.
func TestEveryFeatureHasAPrior(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, p := range priors {
		known[p.name] = true
		check.That(t, !(p.width <= 0) && !(float64(p.sign)*p.mean < 0), "prior %+v", p)
	}
	for _, name := range match.FeatureNames() {
		check.That(t, known[name], "%s has no prior", name)
		delete(known, name)
	}
	delete(known, baseName)
	check.That(t, len(known) == 0, "priors without a feature: %v", known)
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "broken.jsonl")
	check.OK(t, os.WriteFile(broken, []byte("{\"label\":1}\n{\n"), 0o600))
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "usage"},
		{[]string{"nowhere.jsonl"}, "read pairs"},
		{[]string{broken}, "pair 2"},
	} {
		err := run(test.args, &bytes.Buffer{})
		check.That(t, err != nil && strings.Contains(err.Error(), test.want), "%v: %v, want %q", test.args, err, test.want)
	}
}

func TestWriteReplacesTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weights.go")
	var printed bytes.Buffer
	check.OK(t, errors.Join(run([]string{pairsFile(t)}, &printed), run([]string{"-write", path, pairsFile(t)}, io.Discard)))
	written := check.Must(os.ReadFile(path))(t)
	check.Equal(t, printed.String(), string(written))
	check.Failsf(t, run([]string{"-write", t.TempDir(), pairsFile(t)}, io.Discard), "a folder was overwritten")
}
