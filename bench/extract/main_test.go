package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/services/importer/recipe"
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
	if err := run([]string{"--data", t.TempDir()}, &out); err != nil {
		t.Fatal(err)
	}
	if r := lastLine(t, out.String()); !r.OK || !r.Skipped || !strings.Contains(out.String(), "skipped") {
		t.Errorf("%s", out.String())
	}
}

// write makes two dishes of one video each.
func write(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("Title,VideoUrl,TimeStamp,Sentence,IsUsefulSentence,Object(directly),Time,Temperature\n")
	for _, dish := range []string{"soup", "stew"} {
		for i, s := range []struct{ text, step, object, time, heat string }{
			{"hello and welcome to my kitchen.", "0", "", "", ""},
			{"how are you all doing?", "0", "", "", ""},
			{"chop the onions and the garlic.", "1", "onions; garlic", "", ""},
			{"fry them over medium heat for five minutes.", "1", "onions", "5 minutes", "medium heat"},
			{"it smells amazing.", "0", "", "", ""},
			{"pour in two cups of water.", "1", "water", "", ""},
			{"thank you for watching.", "0", "", "", ""},
		} {
			fmt.Fprintf(&b, "%s,https://video.example/%s,00:%02d.0,%s,%s,%s,%s,%s\n", dish, dish, 5*i, s.text, s.step, s.object, s.time, s.heat)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "marked.csv"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestScoresBothHalves(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run([]string{"--data", write(t), "--videos", "--errors"}, &out); err != nil {
		t.Fatal(err)
	}
	r := lastLine(t, out.String())
	for name, s := range map[string]*split{"train": r.Train, "validation": r.Validation} {
		if s == nil || s.Videos != 1 || s.Sentences != 7 || s.Marked != 3 || s.NoRecipe != 0 {
			t.Fatalf("%s: %+v in %s", name, s, out.String())
		}
		for what, c := range map[string]score{
			"steps": s.Steps, "starts": s.Starts, "ingredients": s.Ingredients, "times": s.Times, "temperatures": s.Temperatures,
		} {
			if c.F1 != 1 {
				t.Errorf("%s %s: %+v", name, what, c)
			}
		}
		if every := s.Baselines["every_sentence"]; every.Recall != 1 || every.Precision != 0.429 {
			t.Errorf("every sentence: %+v", every)
		}
	}
}

func TestJudgeCountsTimeOutsideOfStepsAsMissed(t *testing.T) {
	t.Parallel()
	v := video{rows: []row{{start: 0, end: 5, step: true}, {start: 5, end: 10}, {start: 10, end: 15, step: true}, {start: 15, end: 20}}}
	r := recipe.Recipe{Steps: []recipe.Step{{Timestamp: new(0.0), End: new(10.0)}}}
	got := judge(&printer{}, &v, &r)
	if got.steps != (counts{Right: 1, Wrong: 1, Missed: 1}) || got.starts != (counts{Right: 1, Missed: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"onions", "onion", true},
		{"red onion", "onions", true},
		{"tomatoes", "cherry tomato", true},
		{"center of dough", "dough", true},
		{"berries", "berry", true},
		{"onion", "garlic", false},
		{"tomato sauce", "soy sauce", true}, // the same noun
	} {
		if got := same(nameOf(c.a), nameOf(c.b)); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{
		"30-45 seconds": {30, 45}, "about an hour": {3600, 3600}, "half an hour": {1800, 1800}, "five minutes": {300, 300},
		"5minutes": {300, 300}, "2-3 hours": {7200, 10800}, "a few minutes": {0, 0}, "a couple of minutes": {120, 120},
	} {
		if low, high := bounds(text); [2]int{low, high} != want {
			t.Errorf("%q is %d to %d", text, low, high)
		}
	}
}

func TestLevelsAndDegrees(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b string }{
		{"medium-high heat", "medium high heat"}, {"very high heat", "high heat"}, {"rolling boil", "boil"},
	} {
		if level(c.a) == "" || level(c.a) != level(c.b) {
			t.Errorf("%q and %q", c.a, c.b)
		}
	}
	if degrees("three hundred seventy five degrees.") != "three hundred seventy five" || degrees("395 degrees") != "395" {
		t.Errorf("%q %q", degrees("three hundred seventy five degrees."), degrees("395 degrees"))
	}
}
