package rules_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// video is a sample as it stands in testdata, times in seconds.
type video struct {
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Language    string            `json:"language"`
	Duration    float64           `json:"duration"`
	Segments    []caption.Segment `json:"segments"`
	Chapters    []struct {
		Start float64 `json:"start"`
		Title string  `json:"title"`
	} `json:"chapters"`
}

func sample(t testing.TB, name string) extract.Input {
	t.Helper()
	data := check.Must(os.ReadFile(filepath.Join("testdata", name+".input.json")))(t)
	var v video
	check.OK(t, json.Unmarshal(data, &v))
	in := extract.Input{
		Description: v.Description, Duration: seconds(v.Duration), Language: v.Language, Segments: v.Segments, Title: v.Title,
		Source: recipe.Source{Type: "youtube", Ref: "https://video.example/" + name},
	}
	for _, c := range v.Chapters {
		in.Chapters = append(in.Chapters, extract.Chapter{Start: seconds(c.Start), Title: c.Title})
	}
	return in
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// TestSamples holds whole recipes against files; run it with -update after a change that is meant, and read the difference.
func TestSamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.input.json")
	check.Require(t, err == nil && len(files) != 0, "%d samples: %v", len(files), err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".input.json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := check.Must(rules.New().Extract(t.Context(), sample(t, name)))(t)
			got := check.Must(json.MarshalIndent(r, "", " "))(t)
			golden := filepath.Join("testdata", name+".recipe.json")
			if *update {
				check.OK(t, os.WriteFile(golden, append(got, '\n'), 0o600))
			}
			want := check.Must(os.ReadFile(golden))(t)
			check.Equal(t, strings.TrimSpace(string(want)), string(got))
		})
	}
}

func TestIngredientLine(t *testing.T) {
	t.Parallel()
	cut := strings.Repeat("very ", 60) + "good flour"
	const long = "Enough of whatever you have in the house that goes well with fish and is not too sweet"
	for line, want := range map[string]recipe.Ingredient{
		"2 ½ cups  flour, sifted":           {Qty: "2 1/2", Unit: "cup", Item: "flour", Note: "sifted", Raw: "2 ½ cups flour, sifted"},
		"Salt to taste":                     {Item: "Salt", Note: "to taste", Raw: "Salt to taste"},
		long:                                {Item: long, Raw: long},
		"  ":                                {},
		"1 onion ((3/4 cup, packed))":       {Qty: "1", Item: "onion", Note: "3/4 cup, packed", Raw: "1 onion ((3/4 cup, packed))"},
		"2 eggs (large (or 3 small)), cold": {Qty: "2", Item: "eggs", Note: "large or 3 small, cold", Raw: "2 eggs (large (or 3 small)), cold"},
		"Salt (optional, see the notes)":    {Item: "Salt", Note: "optional, see the notes", Raw: "Salt (optional, see the notes)"},
		"Butter ((to taste))":               {Item: "Butter", Note: "to taste", Raw: "Butter ((to taste))"},
		"Oil (for frying":                   {Item: "Oil", Note: "for frying", Raw: "Oil (for frying"},
		"Rice) rinsed":                      {Item: "Rice rinsed", Raw: "Rice) rinsed"},
		"Thyme ( ), fresh":                  {Item: "Thyme", Note: "fresh", Raw: "Thyme ( ), fresh"},
		cut:                                 {Item: cut, Raw: cut},
	} {
		diff := cmp.Diff(want, rules.Ingredient(line))
		check.That(t, diff == "", "%q (-want +got):\n%s", line, diff)
	}
}

func TestStepOfInstruction(t *testing.T) {
	t.Parallel()
	want := recipe.Step{
		Text:         "Bake at 350 F for 20 minutes.",
		Times:        []recipe.Duration{{MinSec: 1200, MaxSec: 1200, Raw: "20 minutes"}},
		Temperatures: []recipe.Temperature{{Degrees: 350, MaxDegrees: 350, Scale: "F", Raw: "350 F"}},
	}
	check.Equal(t, want, rules.Step("Bake at 350 F\n for 20 minutes."))
}

// Without times, a written method is better than steps made of the talk; the ingredients may come from the talk.
func TestWrittenMethodOfUntimedText(t *testing.T) {
	t.Parallel()
	in := extract.Input{
		Title: "Lemon cake", Untimed: true, Description: "Method:\nMix the flour and the eggs.\nBake for 45 minutes.",
		Segments: []caption.Segment{{Text: "Mix two cups of flour and three eggs."}, {Text: "Bake for 45 minutes."}},
	}
	r, err := rules.New().Extract(t.Context(), in)
	check.OK(t, err)
	check.That(t, len(r.Steps) == 2 && r.Steps[0].Text == "Mix the flour and the eggs." && len(r.Ingredients) == 2,
		"steps %+v, ingredients %+v: want the two that are written, and the two that are spoken of", r.Steps, r.Ingredients)
	in.Untimed = false
	r, err = rules.New().Extract(t.Context(), in)
	check.That(t, err == nil && r.Steps[0].Timestamp != nil, "recipe %+v, error %v: want steps with times where there are times", r, err)
}
