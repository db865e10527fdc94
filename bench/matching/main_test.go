package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func lastLine(t *testing.T, out string) report {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var r report
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatalf("%v in %q", err, lines[len(lines)-1])
	}
	return r
}

func TestSkipsWithoutData(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run([]string{"--data", t.TempDir(), "--json"}, &out); err != nil {
		t.Fatal(err)
	}
	if r := lastLine(t, out.String()); !r.OK || !r.Skipped || !strings.Contains(out.String(), "skipped") {
		t.Errorf("%s", out.String())
	}
}

func TestMeasures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("pairs-valid.jsonl", `{"left":{"name":"Spago","addr":"1114 Horn Ave .","city":"LA","phone":"310/652 -4025"},"right":{"title":"Spago (Los Angeles)","address":"8795 Sunset Blvd.","city":"W. Hollywood","tel":3106524025},"label":1}
{"left":{"name":"Spago"},"right":{"name":"Patina"},"label":0}
`)
	write("fodors.csv", "id,name,addr,city,phone\n1,spago,1114 horn ave.,la,310/652-4025\n2,patina,5955 melrose ave.,la,213/467-1108\n3,nobody,1 nowhere,la,\n")
	write("zagats.csv", "id,name,addr,city,phone\n1,patina,5955 melrose ave.,la,213-467-1108\n2,spago (los angeles),8795 sunset blvd.,w. hollywood,310-652-4025\n")
	var out bytes.Buffer
	if err := run([]string{"--data", dir, "--json", "--errors"}, &out); err != nil {
		t.Fatal(err)
	}
	r := lastLine(t, out.String())
	if len(r.Pairs) != len(fieldSets) || len(r.Tables) != len(fieldSets) || r.Timing == nil {
		t.Fatalf("%+v", r)
	}
	if p := r.Pairs[0]; p.Pairs != 2 || p.Matches != 1 || p.Right+p.Missed != 1 || p.Wrong != 0 {
		t.Errorf("pairs: %+v", p)
	}
	if s := r.Tables[0]; s.Known != 1 || s.Right+s.Missed != 1 || s.Unjudged != 1 || s.SamePhone != 1 || s.Wrong != 0 {
		t.Errorf("tables: %+v", s)
	}
}

func TestBadData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pairs.jsonl"), []byte("{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"--data", dir}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "pair 1") {
		t.Errorf("%v", err)
	}
}
