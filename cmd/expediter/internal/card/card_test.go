package card

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func render(t *testing.T, r recipe.Recipe, opts Options) string {
	t.Helper()
	var b bytes.Buffer
	check.OK(t, Write(&b, &r, opts))
	return b.String()
}

func TestCard(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{
		Title: "Leek tart", Description: "A tart for cold days.", Servings: "4-6", Unverified: []string{"servings"},
		Times: recipe.Times{PrepSec: 900, CookSec: 5430, TotalSec: 6330}, Source: recipe.Source{Ref: "https://example.com/tart"},
		Ingredients: []recipe.Ingredient{
			{Qty: "1", Unit: "pinch", Item: "salt"},
			{Qty: "1 1/2", Unit: "cup", Item: "flour", Note: "sifted"},
			{Qty: "2-3", Item: "leeks"},
			{Qty: "3", Unit: "leaf", Item: "sage", Section: "For the top:", Unverified: []string{"qty"}},
			{Qty: "1/2", Unit: "inch", Item: "ginger", Section: "For the top:"},
			{Item: "pepper", Section: "For the top:"},
		},
		Steps: []recipe.Step{
			{Index: 1, Text: "Wash the leeks, cut them into rings as thin as you can, and fry them.", Timestamp: new(65.4)},
			{Index: 2, Text: "Bake.", Timestamp: new(3725.0), Unverified: []string{"timestamp_sec"}},
			{Index: 3, Text: "Serve."},
		},
		Warnings: []recipe.Warning{{Code: extract.WarnUnverified, Text: "Fields are marked."}, {Code: "cut", Text: "It was long."}},
	}
	const want = `Leek tart
Serves 4-6, prep 15 min, cook 1 h 30 min
30 s, total 1 h 45 min 30 s
https://example.com/tart

A tart for cold days.

Ingredients
  1 pinch     salt
  1 1/2 cups  flour, sifted
  2-3         leeks
  For the top:
  3 leaves    sage (?)
  1/2 inch    ginger
              pepper

Steps
  1.    1:05  Wash the leeks, cut them
              into rings as thin as you
              can, and fry them.
  2. 1:02:05  Bake. (?)
  3.          Serve.

! It was long.
! What is marked (?) was not found in
  the source.
`
	check.Equal(t, want, render(t, r, Options{Width: 40}))
	bold := render(t, r, Options{Bold: true, Width: 40})
	for _, heading := range []string{"Leek tart", "Ingredients", "Steps"} {
		check.That(t, strings.Contains(bold, "\x1b[1m"+heading+"\x1b[0m\n"), "%s is not bold", heading)
	}
}

// Texts of strangers cannot move the cursor, and lines keep to the width in every script.
func TestCardOfStrangers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("麺 שלום \x1b[2Jevil\r ", 30) + "\u202e"
	r := recipe.Recipe{
		Title: long[:40], Description: long, Servings: "1 loaf\a", Language: "de",
		Ingredients: []recipe.Ingredient{{Qty: "2", Unit: "Tasse\x1b", Item: long, Section: "\x1b[31m"}}, Steps: []recipe.Step{{Text: long}},
		Warnings: []recipe.Warning{{Code: "x\x07"}},
	}
	out := render(t, r, Options{Source: "a\x00b", Width: 5})
	check.That(t, !strings.ContainsAny(out, "\x1b\x07\x00\r\u202e"), "%q", out)
	check.Says(t, out, "Makes 1 loaf", "2 Tasse\ufffd ")
	lines := strings.Split(out, "\n")
	for _, line := range lines[1:] {
		n := uniseg.StringWidth(line)
		check.That(t, n <= minWidth, "%d cells: %q", n, line)
	}
}

// A description that is the list of ingredients once more is left out.
func TestDescriptionThatRepeats(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{Title: "Tea", Description: "Buy this\n1 cup water\n1 bag tea", Ingredients: []recipe.Ingredient{
		{Item: "water", Raw: "1 cup water"}, {Item: "tea", Raw: "1 bag tea"},
	}}
	out := render(t, r, Options{})
	check.That(t, !strings.Contains(out, "Buy this"), "%v", out)
}

type full struct{}

var errFull = errors.New("the disk is full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteErrorIsReported(t *testing.T) {
	t.Parallel()
	check.Is(t, Write(full{}, &recipe.Recipe{}, Options{}), errFull)
}
