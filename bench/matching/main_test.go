package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSkipsWithoutData(t *testing.T) {
	t.Parallel()
	p := &printer{Builder: &strings.Builder{}}
	r := check.Must(measure(p, t.TempDir()))(t)
	check.That(t, r.Pairs == nil && strings.Contains(p.String(), "skipped"), "%s", p)
}

func TestMeasures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pairs := `{"left":{"name":"Spago","addr":"1114 Horn Ave .","city":"LA","phone":"310/652 -4025"},"right":{"title":"Spago (Los Angeles)","address":"8795 Sunset Blvd.","city":"W. Hollywood","tel":3106524025},"label":1}
{"left":{"name":"Spago"},"right":{"name":"Patina"},"label":0}
`
	check.OK(t, os.WriteFile(filepath.Join(dir, "pairs-valid.jsonl"), []byte(pairs), 0o600))
	r := check.Must(measure(&printer{Builder: &strings.Builder{}, list: true}, dir))(t)
	check.Require(t, len(r.Pairs) == len(fieldSets), "%+v", r)
	p := r.Pairs[0]
	check.That(t, p.Pairs == 2 && p.Matches == 1 && p.Right+p.Missed == 1 && p.Wrong == 0, "pairs: %+v", p)
}
