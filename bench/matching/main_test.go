package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSkipsWithoutData(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	check.OK(t, run([]string{"--data", t.TempDir(), "--json"}, &out))
	r := check.Must(rig.LastLine[report](out.String()))(t)
	check.That(t, r.OK && r.Skipped && strings.Contains(out.String(), "skipped"), "%s", out.String())
}

func TestMeasures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pairs := `{"left":{"name":"Spago","addr":"1114 Horn Ave .","city":"LA","phone":"310/652 -4025"},"right":{"title":"Spago (Los Angeles)","address":"8795 Sunset Blvd.","city":"W. Hollywood","tel":3106524025},"label":1}
{"left":{"name":"Spago"},"right":{"name":"Patina"},"label":0}
`
	check.OK(t, os.WriteFile(filepath.Join(dir, "pairs-valid.jsonl"), []byte(pairs), 0o600))
	var out bytes.Buffer
	check.OK(t, run([]string{"--data", dir, "--json", "--errors"}, &out))
	r := check.Must(rig.LastLine[report](out.String()))(t)
	check.Require(t, len(r.Pairs) == len(fieldSets), "%+v", r)
	p := r.Pairs[0]
	check.That(t, p.Pairs == 2 && p.Matches == 1 && p.Right+p.Missed == 1 && p.Wrong == 0, "pairs: %+v", p)
}

func TestBadData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	check.OK(t, os.WriteFile(filepath.Join(dir, "pairs.jsonl"), []byte("{\n"), 0o600))
	check.Contains(t, run([]string{"--data", dir}, &bytes.Buffer{}), "pair 1")
}
