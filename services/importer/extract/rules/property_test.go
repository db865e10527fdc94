package rules_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// checkRecipe checks the properties of every recipe, of any source.
func checkRecipe(t *testing.T, in extract.Input) {
	t.Helper()
	r, err := rules.New().Extract(t.Context(), in)
	if errors.Is(err, extract.ErrNoRecipe) {
		return
	}
	check.Require(t, err == nil, "%+v: %v", in, err)
	check.OK(t, r.Validate())
	starts := map[float64]bool{}
	for _, s := range in.Segments {
		starts[math.Round(s.Start.Seconds()*1000)/1000] = true
	}
	for _, c := range in.Chapters {
		starts[math.Round(c.Start.Seconds()*1000)/1000] = true
	}
	for _, s := range r.Steps {
		if s.Timestamp != nil && !starts[*s.Timestamp] {
			t.Fatalf("%v is the start of no segment and no chapter", *s.Timestamp)
		}
	}
	data := check.Must(json.Marshal(r))(t)
	check.Require(t, len(data) <= 4<<20, "%d bytes", len(data))
}

// TestAnyMixOfWordsHolds builds sources of words that the rules look for, in no order.
func TestAnyMixOfWordsHolds(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	vocabulary := strings.Fields(`add the salt and two 2 1/2 ½ cups of flour for 5 minutes until golden . . , ? at 350 degrees F medium heat - to
a an half quarter hundred between or so now then i 'm going to stir it don't ( ) : onion onions red soup sauce ignore previous instructions
<b> </b> &amp; https://x.example \n \n Ingredients: Method: Serves 4 0:00 of of a a big half hour and welcome subscribe oven overnight gas mark`)
	text := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = strings.ReplaceAll(vocabulary[random.IntN(len(vocabulary))], `\n`, "\n")
		}
		return strings.Join(list, " ")
	}
	for range 150 {
		in := extract.Input{Title: text(random.IntN(8)), Description: text(random.IntN(120)), Untimed: random.IntN(9) == 0}
		in.Language = []string{"", "en", "de", "x"}[random.IntN(4)]
		at := time.Duration(0)
		for range random.IntN(30) {
			d := time.Duration(random.IntN(9000)) * time.Millisecond
			in.Segments = append(in.Segments, caption.Segment{Start: at, Dur: d, Text: text(random.IntN(30))})
			at += d
		}
		for range random.IntN(5) {
			start := time.Duration(random.IntN(100)) * time.Second
			in.Chapters = append(in.Chapters, extract.Chapter{Start: start, Title: text(3)})
		}
		checkRecipe(t, in)
	}
}

func FuzzExtract(f *testing.F) {
	f.Add("How to make tea", "Ingredients\n1 cup water", "Boil the water.", "add a bag of tea and then stir it", int64(3), "en")
	f.Add("", "2 eggs\n1 tbsp salt\n3 g pepper\nMethod\n1. Mix.", "", "", int64(-5), "")
	f.Add("Omas Kuchen", "Zutaten:\n1 EL Zucker", "Bei 180 Grad backen.", "20 Minuten", int64(1<<40), "de")
	f.Fuzz(func(t *testing.T, title, description, first, second string, start int64, language string) {
		checkRecipe(t, extract.Input{
			Title: title, Description: description, Language: language,
			Segments: []caption.Segment{
				{Start: time.Duration(start), Dur: time.Second, Text: first},
				{Start: time.Duration(start) + time.Second, Dur: time.Second, Text: second},
			},
		})
	})
}

func TestALongSourceIsCut(t *testing.T) {
	t.Parallel()
	in := extract.Input{Title: "Salt", Description: strings.Repeat("x\n", 100_000)}
	for i := range 50_001 { // one more than are read
		in.Segments = append(in.Segments, caption.Segment{Start: time.Duration(i) * time.Second, Dur: time.Second, Text: "Add salt."})
	}
	r := check.Must(rules.New().Extract(t.Context(), in))(t)
	codes := map[string]bool{}
	for _, w := range r.Warnings {
		codes[w.Code] = true
	}
	check.That(t, len(r.Steps) == recipe.MaxSteps && codes[rules.WarnCut] && codes[extract.WarnCut],
		"%d steps, warnings %v", len(r.Steps), r.Warnings)
}

func TestNoRecipe(t *testing.T) {
	t.Parallel()
	for _, in := range []extract.Input{
		{},
		{Title: "My holiday", Segments: []caption.Segment{{Dur: time.Second, Text: "We went to the sea and it was great."}}},
		{Title: "Soup", Description: "Ingredients\n1 onion\n2 carrots"},
	} {
		r, err := rules.New().Extract(t.Context(), in)
		check.That(t, errors.Is(err, extract.ErrNoRecipe), "%q: %+v, %v", in.Title, r, err)
	}
}

// Texts that no weight was fitted to: those in which somebody cooks become recipes, and few of the others, all of which have the
// words of kitchens in other meanings. Most of those carry a warning.
func TestOnlyCookingBecomesARecipe(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ cooking, other, refused, taken, silent int }{
		"heldout.txt": {cooking: 46, other: 86, refused: 1, taken: 4, silent: 1},
		"unseen.txt":  {cooking: 60, other: 66, refused: 2, taken: 17, silent: 6},
		"asides.txt":  {other: 57, taken: 5, silent: 1},
	} {
		got := want
		got.cooking, got.other, got.refused, got.taken, got.silent = 0, 0, 0, 0, 0
		for _, text := range talks(t, name) {
			r, err := rules.New().Extract(t.Context(), text.input)
			doubtful := slices.ContainsFunc(r.Warnings, func(w recipe.Warning) bool { return w.Code == rules.WarnDoubtful })
			switch {
			case err != nil && !errors.Is(err, extract.ErrNoRecipe):
				t.Fatal(err)
			case text.cooking && err != nil:
				got.refused++
				t.Logf("refused: %s: %v", text.input.Title, err)
			case !text.cooking && err == nil:
				got.taken++
				got.silent += map[bool]int{false: 1}[doubtful]
				t.Logf("taken: %s, doubtful %v", text.input.Title, doubtful)
			}
			if text.cooking {
				got.cooking++
			} else {
				got.other++
			}
		}
		if got.cooking < want.cooking || got.other < want.other || got.refused > want.refused || got.taken > want.taken || got.silent > want.silent {
			t.Errorf("%s: %+v, want at most %+v", name, got, want)
		}
	}
}

// labelled is a source, and whether somebody cooks in it.
type labelled struct {
	cooking bool
	input   extract.Input
}

// talks reads a file in which "## cooking: TITLE" or "## other: TITLE" begins a text, a line with ">" is part of its
// description, and any other line is a caption of four seconds.
func talks(t *testing.T, name string) []labelled {
	t.Helper()
	data := check.Must(os.ReadFile("testdata/talks/" + name))(t)
	var out []labelled
	for _, text := range strings.Split("\n"+string(data), "\n## ")[1:] {
		head, body, _ := strings.Cut(text, "\n")
		kind, title, _ := strings.Cut(head, ": ")
		l := labelled{cooking: kind == "cooking", input: extract.Input{Title: title}}
		for line := range strings.Lines(body) {
			if written, ok := strings.CutPrefix(line, ">"); ok {
				l.input.Description += strings.TrimSpace(written) + "\n"
				continue
			}
			at := time.Duration(len(l.input.Segments)) * 4 * time.Second
			l.input.Segments = append(l.input.Segments, caption.Segment{Start: at, Dur: 4 * time.Second, Text: strings.TrimSpace(line)})
		}
		out = append(out, l)
	}
	return out
}

// spoken returns captions of four seconds.
func spoken(lines []string) []caption.Segment {
	out := make([]caption.Segment, len(lines))
	for i, line := range lines {
		out[i] = caption.Segment{Start: time.Duration(i) * 4 * time.Second, Dur: 4 * time.Second, Text: line}
	}
	return out
}

// A talk of an hour is no recipe, however often it speaks of food for a moment: each has fifteen asides with words of kitchens. With six
// minutes of a cook in it, it is one.
func TestOfALongTalkOnlyACookMakesARecipe(t *testing.T) {
	t.Parallel()
	chatter := strings.Split(strings.TrimSpace(string(check.Must(os.ReadFile("testdata/talks/chatter.txt"))(t))), "\n")
	var cooks, asides [][]string
	for _, name := range []string{"heldout.txt", "unseen.txt", "asides.txt"} {
		for _, text := range talks(t, name) {
			var lines []string
			for _, s := range text.input.Segments {
				lines = append(lines, s.Text)
			}
			if text.cooking {
				cooks = append(cooks, lines)
			} else {
				asides = append(asides, lines)
			}
		}
	}
	const talks = 8
	taken, refused := 0, 0
	for seed := range uint64(talks) {
		random := rand.New(rand.NewPCG(seed, 1))
		var talk []string
		for _, i := range random.Perm(len(asides))[:15] {
			at := random.IntN(len(chatter) / 2)
			talk = slices.Concat(talk, chatter[at:at+len(chatter)/2], asides[i])
		}
		_, err := rules.New().Extract(t.Context(), extract.Input{Segments: spoken(talk)})
		if err == nil {
			taken++
		} else {
			check.ErrorIs(t, err, extract.ErrNoRecipe)
		}
		middle := len(talk) / 2
		cooking := talk[:middle:middle]
		for _, i := range random.Perm(len(cooks))[:12] {
			cooking = append(cooking, cooks[i]...)
		}
		if _, err := rules.New().Extract(t.Context(), extract.Input{Segments: spoken(append(cooking, talk[middle:]...))}); err != nil {
			refused++
		}
	}
	check.That(t, taken == 0 && refused == 0, "of %d talks %d are recipes, and %d are none with a cook in them", talks, taken, refused)
}

// Speech in other languages is not followed, so that only a written list makes a recipe of it: a talk has none, whatever it names.
func TestTalksInOtherLanguagesAreNoRecipes(t *testing.T) {
	t.Parallel()
	for tag, said := range map[string]string{
		"de": "ein kochbuch in chef ist eine sammlung von rezepten und man gibt eine prise javascript dazu dann backen wir das image zehn minuten lang",
		"es": "la receta de yocto se cocina durante dos horas y después se mezcla con la capa de arriba y se sirve con una pizca de configuración",
		"fr": "on va prendre deux cuillères de données et on les mélange avec le modèle pendant trente minutes puis on laisse refroidir le serveur",
		"ru": "рецепт в кулинарной книге шефа это файл на руби мы добавляем щепотку соли к паролю и варим образ десять минут при ста градусах",
		"ja": "レシピはクックブックに入っています パスワードに塩を加えて 十分間イメージを焼きます",
		"he": "המתכון נמצא בספר הבישול מוסיפים קורט מלח לסיסמה ואופים את התמונה עשר דקות",
	} {
		for _, language := range []string{tag, ""} {
			in := extract.Input{Language: language, Segments: spoken(slices.Repeat([]string{said}, 40))}
			check.ErrorIs(t, check.Err(rules.New().Extract(t.Context(), in)), extract.ErrNoRecipe, tag)
		}
	}
}

// countdown is a context that ends when it has been looked at a number of times.
type countdown struct {
	context.Context

	left *int
}

func (c countdown) Err() error {
	*c.left--
	if *c.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

func TestExtractLooksAtItsContextAtEverySentence(t *testing.T) {
	t.Parallel()
	in := sample(t, "tomato-soup")
	for _, s := range in.Segments {
		in.Segments = append(in.Segments, s, s, s)
	}
	const plenty = 1 << 20
	left := plenty
	check.OK(t, check.Err(rules.New().Extract(countdown{t.Context(), &left}, in)))
	looks := plenty - left
	check.That(t, looks >= 5*len(in.Segments),
		"%d looks at the context in %d segments: want one for each in every pass", looks, len(in.Segments))
	for n := range looks {
		left := n
		if _, err := rules.New().Extract(countdown{t.Context(), &left}, in); !errors.Is(err, context.DeadlineExceeded) || left < -2 {
			t.Fatalf("ended at look %d of %d: error %v, %d looks after that", n, looks, err, -1-left)
		}
	}
}

func TestUnsupportedLanguagesAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ language, said, want string }{
		{"ja", "玉ねぎを切って フライパンで炒めます", "Japanese"},
		{"", "玉ねぎを切って フライパンで炒めます", "Japanese"},
		{"pl", "kroimy cebulę i smażymy ją na patelni", "Polish"},
		{"", strings.Repeat("soğanı doğrayıp yağda kavuruyoruz sonra domatesleri ekliyoruz ", 5), "not known"},
	} {
		_, err := rules.New().Extract(t.Context(), extract.Input{Language: c.language, Segments: []caption.Segment{{Dur: time.Second, Text: c.said}}})
		failed := extract.Failure(err)
		if !errors.Is(err, extract.ErrNoRecipe) || failed.Retryable || !strings.Contains(failed.Message, c.want) || !strings.Contains(failed.Message, "English") {
			t.Errorf("%q: %v", c.said, err)
		}
	}
}

func TestAPhotoWithoutText(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"image/png":  "no text was read from the photo (image/png): it has to be an upright JPEG",
		"image/heic": "no text was read from the photo, which is HEIC: hand it in as JPEG, which an iPhone takes with Settings",
	} {
		_, err := rules.New().Extract(t.Context(), extract.Input{Title: "x", Image: []byte("x"), ImageType: kind})
		check.That(t, errors.Is(err, extract.ErrNoRecipe) && strings.Contains(err.Error(), want), "%v", err)
	}
}

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
			testbed.Golden(t, filepath.Join("testdata", name+".recipe.json"), append(got, '\n'))
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
		diff := cmp.Diff(want, rules.Ingredient(line, ""))
		check.That(t, diff == "", "%q (-want +got):\n%s", line, diff)
	}
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
