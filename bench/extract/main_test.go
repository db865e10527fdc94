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
