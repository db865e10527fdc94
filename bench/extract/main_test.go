package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSkipsWithoutData(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	check.OK(t, run([]string{"--data", t.TempDir()}, &out))
	r := check.Must(rig.LastLine[report](out.String()))(t)
	check.That(t, r.OK && r.Skipped && strings.Contains(out.String(), "skipped"), "%s", out.String())
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
	check.OK(t, os.WriteFile(filepath.Join(dir, "marked.csv"), []byte(b.String()), 0o600))
	return dir
}

func TestScoresBothHalves(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	check.OK(t, run([]string{"--data", write(t), "--videos", "--errors"}, &out))
	r := check.Must(rig.LastLine[report](out.String()))(t)
	for name, s := range map[string]*split{"train": r.Train, "validation": r.Validation} {
		check.Require(t, s != nil && s.Videos == 1 && s.Sentences == 7 && s.Marked == 3 && s.NoRecipe == 0,
			"%s: %+v in %s", name, s, out.String())
		for what, c := range map[string]rig.Score{
			"steps": s.Steps, "starts": s.Starts, "ingredients": s.Ingredients, "times": s.Times, "temperatures": s.Temperatures,
		} {
			check.That(t, c.F1 == 1, "%s %s: %+v", name, what, c)
		}
		every := s.Baselines["every_sentence"]
		check.That(t, every.Recall == 1 && every.Precision == 0.429, "every sentence: %+v", every)
	}
}

func TestJudgeCountsTimeOutsideOfStepsAsMissed(t *testing.T) {
	t.Parallel()
	v := video{rows: []row{{start: 0, end: 5, step: true}, {start: 5, end: 10}, {start: 10, end: 15, step: true}, {start: 15, end: 20}}}
	r := recipe.Recipe{Steps: []recipe.Step{{Timestamp: new(0.0), End: new(10.0)}}}
	got := judge(&printer{}, &v, &r)
	check.That(t, got.steps == (rig.Counts{Right: 1, Wrong: 1, Missed: 1}) && got.starts == (rig.Counts{Right: 1, Missed: 1}), "%+v", got)
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
		{"tomato sauce", "soy sauce", false}, // the same noun only
	} {
		check.Same(t, fmt.Sprintf("%s and %s", c.a, c.b), same(nameOf(c.a), nameOf(c.b)), c.want)
	}
	v := video{title: "dinner", rows: []row{{step: true, objects: "soy sauce; onions"}}}
	exact, noun := judgeObjects(&v, []string{"tomato sauce", "red onion"}, same), judgeObjects(&v, []string{"tomato sauce", "red onion"}, sameNoun)
	check.That(t, exact == (rig.Counts{Right: 1, Wrong: 1, Missed: 1}) && noun == (rig.Counts{Right: 2}),
		"%+v, by nouns alone %+v", exact, noun)
}

func TestTalksAreCountedBySource(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "texts.txt")
	text := "## cooking: soup | a\nChop the onions and the carrots.\nFry them in butter, add stock and simmer for ten minutes.\n" +
		"## other: code | b\nwe add a method to the class and run the compiler\nthe server returns the json\n"
	check.OK(t, os.WriteFile(path, []byte(text), 0o600))
	var out bytes.Buffer
	check.OK(t, run([]string{"--data", t.TempDir(), "--talks", path + ",none.vtt"}, &out))
	talks := check.Must(rig.LastLine[report](out.String()))(t).Talks
	check.That(t, len(talks) == 2 && *talks["a"] == (verdicts{Cooking: 1}) && *talks["b"] == (verdicts{Other: 1}), "%s", out.String())
}

func TestPagesAreCountedByTheirFacts(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	check.OK(t, run([]string{"--data", t.TempDir(), "--talks", "none"}, &out))
	p := check.Must(rig.LastLine[report](out.String()))(t).Pages
	check.That(t, p != nil && p.Pages >= 40 && p.Whole == p.Pages && p.Facts.F1 == 1, "%s", out.String())
	got := judgeFacts([]string{"title: Soup", "step: Mix.", "step: Mix."}, []string{"step: Mix.", "title: Stew"})
	check.That(t, got == (rig.Counts{Right: 1, Wrong: 2, Missed: 1}), "%+v", got)
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{
		"30-45 seconds": {30, 45}, "about an hour": {3600, 3600}, "half an hour": {1800, 1800}, "five minutes": {300, 300},
		"5minutes": {300, 300}, "2-3 hours": {7200, 10800}, "a few minutes": {0, 0}, "a couple of minutes": {120, 120},
	} {
		low, high := bounds(text)
		check.That(t, [2]int{low, high} == want, "%q is %d to %d", text, low, high)
	}
}

func TestLevelsAndDegrees(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b string }{
		{"medium-high heat", "medium high heat"}, {"very high heat", "high heat"}, {"rolling boil", "boil"},
	} {
		check.That(t, level(c.a) != "" && level(c.a) == level(c.b), "%q and %q", c.a, c.b)
	}
	for text, want := range map[string]string{
		"three hundred fifty degrees": "350", "three hundred seventy five degrees.": "375", "395 degrees": "395", "three hundred and fifty": "350", "three fifty": "350",
		"four twenty five": "425", "two hundred degrees": "200", "ninety degrees": "90", "medium heat": "",
	} {
		check.Same(t, text, degrees(text), want)
	}
}
