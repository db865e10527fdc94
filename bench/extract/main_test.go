package main

import (
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
	var out strings.Builder
	r := check.Must(score(&out, t.TempDir()))(t)
	check.That(t, r.Train == nil && strings.Contains(out.String(), "skipped"), "%s", out.String())
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
	var out strings.Builder
	r := check.Must(score(&out, write(t)))(t)
	for name, s := range map[string]*split{"train": r.Train, "validation": r.Validation} {
		check.Require(t, s != nil && s.Videos == 1 && s.Sentences == 7 && s.Steps.Right == 3 && s.NoRecipe == 0,
			"%s: %+v in %s", name, s, out.String())
		for what, c := range map[string]rig.Score{
			"steps": s.Steps, "ingredients": s.Ingredients, "times": s.Times, "temperatures": s.Temperatures,
		} {
			check.That(t, c.F1 == 1, "%s %s: %+v", name, what, c)
		}
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
		{"tomato sauce", "soy sauce", false},
	} {
		check.Equal(t, has([][]string{nameOf(c.a)}, nameOf(c.b)), c.want, fmt.Sprintf("%s and %s", c.a, c.b))
	}
	v := video{title: "dinner", rows: []row{{step: true, objects: "soy sauce; onions"}}}
	got := judgeObjects(&v, &recipe.Recipe{Ingredients: []recipe.Ingredient{{Item: "tomato sauce"}, {Item: "red onion"}}})
	check.That(t, got == (rig.Counts{Right: 1, Wrong: 1, Missed: 1}), "%+v", got)
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
		check.Equal(t, degrees(text), want, text)
	}
}
