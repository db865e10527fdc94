package rules_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

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
	for i := range 60_000 {
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

func TestExtractEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := rules.New().Extract(ctx, sample(t, "omelette"))
	check.Is(t, err, context.Canceled)
}

func TestTheSameSourceGivesTheSameRecipe(t *testing.T) {
	t.Parallel()
	var last string
	for range 5 {
		r := check.Must(rules.New().Extract(t.Context(), sample(t, "tomato-soup")))(t)
		if got := fmt.Sprintf("%+v", items(r)); last != "" && got != last {
			t.Errorf("%s, then %s", last, got)
		} else {
			last = got
		}
	}
}

func items(r recipe.Recipe) []string {
	var out []string
	for _, i := range r.Ingredients {
		out = append(out, string(i.Qty)+" "+i.Unit+" "+i.Item)
	}
	return out
}

func ExampleNew() {
	r, err := rules.New().Extract(context.Background(), extract.Input{
		Title:       "How to make the best mint tea",
		Description: "Ingredients:\n1 bunch of mint\n2 cups water",
		Segments: []caption.Segment{
			{Start: 0, Dur: 4 * time.Second, Text: "Hello and welcome back."},
			{Start: 4 * time.Second, Dur: 5 * time.Second, Text: "So I'm going to boil two cups of water."},
			{Start: 9 * time.Second, Dur: 5 * time.Second, Text: "Pour the water over the mint and wait for five minutes."},
		},
	})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(r.Title)
	for _, i := range r.Ingredients {
		fmt.Println(" ", i.Qty, i.Unit, i.Item)
	}
	for _, s := range r.Steps {
		fmt.Printf("  %d. [%.0fs] %s\n", s.Index, *s.Timestamp, s.Text)
	}
	// Output:
	// Mint tea
	//   1 bunch mint
	//   2 cup water
	//   1. [4s] Boil two cups of water.
	//   2. [9s] Pour the water over the mint and wait for five minutes.
}

// Texts that no weight was fitted to: those in which somebody cooks become recipes, and few of the others, all of which have the
// words of kitchens in other meanings. Most of those carry a warning.
func TestOnlyCookingBecomesARecipe(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ cooking, other, refused, taken, silent int }{
		"heldout.txt": {cooking: 46, other: 86, refused: 1, taken: 4, silent: 1},
		"unseen.txt":  {cooking: 60, other: 66, refused: 2, taken: 17, silent: 6},
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

// A cook is found in hours of talk, which alone becomes no recipe.
func TestACookIsFoundInALongTalk(t *testing.T) {
	t.Parallel()
	chatter := check.Must(os.ReadFile("testdata/talks/chatter.txt"))(t)
	var talk []caption.Segment
	for line := range strings.Lines(strings.Repeat(string(chatter), 20)) {
		talk = append(talk, caption.Segment{Start: time.Duration(len(talk)) * 4 * time.Second, Dur: 4 * time.Second, Text: line})
	}
	check.Is(t, check.Err(rules.New().Extract(t.Context(), extract.Input{Segments: talk})), extract.ErrNoRecipe, "talk:")
	for _, text := range talks(t, "heldout.txt") {
		if text.input.Title == "gumbo" {
			check.OK(t, check.Err(rules.New().Extract(t.Context(), extract.Input{Segments: slices.Concat(talk, text.input.Segments, talk)})))
			return
		}
	}
	t.Fatal("there is no gumbo")
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
