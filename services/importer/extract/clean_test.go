package extract_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestCleanTexts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"Plain text", "Plain text"},
		{"  two\n lines\tand  gaps ", "two lines and gaps"},
		{"<b>bold</b> move", "bold move"},
		{"a<br>b", "a b"},
		{"<script>alert(1)</script>safe", "safe"},
		{"<style>x{}</style>safe", "safe"},
		{"<img src=x onerror=alert(1)>safe", "safe"},
		{"<!-- hidden -->safe", "safe"},
		{"&lt;b&gt;twice&lt;/b&gt; hidden", "twice hidden"},
		{"&amp;lt;script&amp;gt;x", "scriptx"},
		{"salt &amp; pepper", "salt & pepper"},
		{"2 < 3 and 4 > 3", "2 3 and 4 3"},
		{"unclosed <b", "unclosed"},
		{"see https://a.example/x?y=1 now", "see now"},
		{"see www.a.example/x now", "see now"},
		{"see a-b.com/x now", "see now"},
		{"javascript:alert(1) salt", "salt"},
		{"bake at 350.Then cool", "bake at 350.Then cool"},
		{"zero\u200bwidth\u202e and \x00nul", "zerowidth and nul"},
		{"broken \xff bytes", "broken bytes"},
	} {
		r := recipe.Recipe{Title: c.text, Steps: []recipe.Step{{Text: c.text}}, Ingredients: []recipe.Ingredient{{Item: c.text, Note: c.text}}}
		extract.Clean(&r)
		for field, got := range map[string]string{
			"title": r.Title, "step": r.Steps[0].Text, "item": r.Ingredients[0].Item, "note": r.Ingredients[0].Note,
		} {
			check.That(t, got == c.want, "%s: %q is %q, want %q", field, c.text, got, c.want)
		}
	}
}

func TestCleanKeepsLinesOfDescriptions(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{Description: "One.\n\n\n  Two.  \n"}
	extract.Clean(&r)
	check.That(t, r.Description == "One.\n\nTwo.", "%q", r.Description)
}

func TestCleanDropsWhatIsEmptyAndCountsAnew(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{
		Title:       "x",
		Ingredients: []recipe.Ingredient{{Item: " "}, {Item: "salt"}},
		Steps:       []recipe.Step{{Index: 5, Text: "<b></b>"}, {Index: 7, Text: "Stir."}, {Index: 7, Text: "Serve."}},
	}
	extract.Clean(&r)
	check.That(t, len(r.Ingredients) == 1 && len(r.Steps) == 2 && r.Steps[0].Index == 1 && r.Steps[1].Index == 2, "%+v", r)
	holds(t, &r)
}

// holds checks that a recipe has its parts, and each text, list and number of it is within its bounds.
func holds(t *testing.T, r *recipe.Recipe) {
	t.Helper()
	check.OK(t, r.Validate())
	most := map[string]int{
		"Title": recipe.MaxTitle, "Description": recipe.MaxDescription, "Servings": recipe.MaxItem, "Ingredients": recipe.MaxIngredients,
		"Steps": recipe.MaxSteps, "Language": recipe.MaxWord, "Type": recipe.MaxWord, "Ref": contracts.MaxURL, "Extractor": recipe.MaxWord,
		"Unverified": recipe.MaxMarks, "Warnings": recipe.MaxWarnings, "Qty": recipe.MaxWord, "Unit": recipe.MaxWord, "Item": recipe.MaxItem,
		"Note": recipe.MaxNote, "Section": recipe.MaxItem, "Raw": recipe.MaxNote, "Index": recipe.MaxSteps, "Text": recipe.MaxStep,
		"Timestamp": recipe.MaxSeconds, "End": recipe.MaxSeconds, "Times": recipe.MaxMarks, "Temperatures": recipe.MaxMarks,
		"MinSec": recipe.MaxSeconds, "MaxSec": recipe.MaxSeconds, "Until": recipe.MaxNote, "Degrees": recipe.MaxDegrees,
		"MaxDegrees": recipe.MaxDegrees, "Scale": len("gas"), "Level": recipe.MaxWord, "PrepSec": recipe.MaxSeconds,
		"CookSec": recipe.MaxSeconds, "TotalSec": recipe.MaxSeconds, "Code": recipe.MaxWord,
	}
	var walk func(name string, v reflect.Value)
	walk = func(name string, v reflect.Value) {
		bound, ok := most[name], true
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(name, v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Type().Field(i).Name, v.Field(i))
			}
		case reflect.Slice:
			ok = v.Len() <= bound
			for i := range v.Len() {
				walk("Code", v.Index(i)) // names of fields are words
			}
		case reflect.String:
			ok = len(v.String()) <= bound && utf8.ValidString(v.String()) &&
				(name == "Description" || !strings.ContainsFunc(v.String(), unicode.IsControl))
		case reflect.Int:
			ok = v.Int() >= 0 && int(v.Int()) <= bound
		default:
			ok = math.Abs(v.Float()) <= float64(bound) && (v.Float() >= 0 || strings.HasSuffix(name, "Degrees"))
		}
		check.That(t, ok, "%s is out of its bounds: %.100v", name, v)
	}
	walk("", reflect.ValueOf(*r))
}

// TestCleanMakesAnythingValid puts too much into every field.
func TestCleanMakesAnythingValid(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é long ", 4000)
	r := recipe.Recipe{
		Title: long, Description: long, Servings: long, Language: "en", Unverified: strings.Fields(long),
		Times:  recipe.Times{PrepSec: -5, CookSec: math.MaxInt, TotalSec: 1},
		Source: recipe.Source{Type: long, Extractor: long},
	}
	for range recipe.MaxIngredients + 5 {
		r.Ingredients = append(r.Ingredients, recipe.Ingredient{
			Qty: recipe.Quantity(long), Unit: long, Item: long, Note: long, Section: long, Raw: long, Unverified: []string{long},
		})
	}
	nan, inf := math.NaN(), math.Inf(1)
	for i := range recipe.MaxSteps + 5 {
		s := recipe.Step{Text: long, Timestamp: &nan, End: &inf}
		for range recipe.MaxMarks + 5 {
			if i > 0 {
				break
			}
			s.Times = append(s.Times, recipe.Duration{MinSec: 9, MaxSec: -9, Until: long, Raw: long})
			s.Temperatures = append(s.Temperatures, recipe.Temperature{Degrees: 9, Scale: long, Level: long, Raw: long})
		}
		s.Temperatures = append([]recipe.Temperature{{Degrees: nan, Raw: "x"}}, s.Temperatures...)
		r.Steps = append(r.Steps, s)
	}
	for range recipe.MaxWarnings + 5 {
		r.Warnings = append(r.Warnings, recipe.Warning{Code: long, Text: long})
	}
	extract.Clean(&r)
	holds(t, &r)
	check.That(t, warned(&r, extract.WarnCut) && warned(&r, extract.WarnField), "nobody says that it was cut")
}

// A long step is divided at sentences, else at words, and loses nothing; a step beyond all bounds is
// reported.
func TestCleanDividesLongSteps(t *testing.T) {
	t.Parallel()
	at := 5.0
	for _, sentence := range []string{"Stir it for 5 minutes until golden. ", "一分間炒めます。", "word "} {
		text := strings.TrimSpace(strings.Repeat(sentence, 9*recipe.MaxStep/len(sentence)))
		r := recipe.Recipe{Title: "x", Ingredients: []recipe.Ingredient{{Item: "salt"}}, Steps: []recipe.Step{{Text: "First."}, {Text: text, Timestamp: &at}}}
		extract.Clean(&r)
		holds(t, &r)
		got := ""
		for i, s := range r.Steps[1:] {
			got += s.Text
			check.That(t, (!strings.HasPrefix(text, "Stir") || strings.HasSuffix(s.Text, "golden.") && len(s.Times) != 0) && (s.Timestamp != nil) == (i == 0),
				"step %+v", s)
		}
		check.That(t, strings.ReplaceAll(got, " ", "") == strings.ReplaceAll(text, " ", "") && len(r.Warnings) == 0,
			"%d bytes of %d are left, warnings %v", len(got), len(text), r.Warnings)
	}
	r := recipe.Recipe{Steps: []recipe.Step{{Text: strings.Repeat("Stir. ", recipe.MaxSteps*recipe.MaxStep/5)}}}
	extract.Clean(&r)
	check.That(t, warned(&r, extract.WarnCut), "warnings %v: want the cut reported", r.Warnings)
}

// A field that is not of its form is left out, not bent into it, and named.
func TestCleanNamesWhatItDrops(t *testing.T) {
	t.Parallel()
	at, before := 5.0, 3.0
	for name, spoil := range map[string]func(r *recipe.Recipe){
		"a time of the recipe":    func(r *recipe.Recipe) { r.Times.CookSec = recipe.MaxSeconds + 1 },
		"the timestamp of a step": func(r *recipe.Recipe) { inf := math.Inf(1); r.Steps[0].Timestamp = &inf },
		"the end of a step":       func(r *recipe.Recipe) { r.Steps[0].Timestamp, r.Steps[0].End = &at, &before },
		"the duration of a step":  func(r *recipe.Recipe) { r.Steps[0].Times = []recipe.Duration{{MinSec: -1, Raw: "x"}} },
		"the scale of a temperature": func(r *recipe.Recipe) {
			r.Steps[0].Temperatures = []recipe.Temperature{{Degrees: 9, Scale: "K", Raw: "x"}}
		},
		"the temperature of a step": func(r *recipe.Recipe) { r.Steps[0].Temperatures = []recipe.Temperature{{Degrees: 1e9, Raw: "x"}} },
	} {
		r := recipe.Recipe{Title: "x", Ingredients: []recipe.Ingredient{{Item: "salt"}}, Steps: []recipe.Step{{Text: "Stir."}}}
		spoil(&r)
		extract.Clean(&r)
		if len(r.Warnings) != 1 || r.Warnings[0].Code != extract.WarnField || !strings.HasSuffix(r.Warnings[0].Text, ": "+name+".") || r.Times.CookSec != 0 {
			t.Errorf("%s: times %+v, warnings %v", name, r.Times, r.Warnings)
		}
		holds(t, &r)
	}
}

func TestCleanDropsWhatIsNoLanguage(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]string{"en_US": "en_US", "pt-BR": "pt-BR", "English": "", "https://schema.org/en": "", "": ""} {
		r := recipe.Recipe{Title: "x", Language: tag, Ingredients: []recipe.Ingredient{{Item: "salt"}}, Steps: []recipe.Step{{Text: "Stir."}}}
		extract.Clean(&r)
		check.That(t, r.Language == want && warned(&r, extract.WarnField) == (want != tag),
			"%q: language %q, warnings %v", tag, r.Language, r.Warnings)
	}
}

// Stores and clients rely on these, which Validate does not check.
func TestCleanMakesTheMarksOfAStepConsistent(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{Steps: []recipe.Step{{
		Text: "Bake.", End: new(3.0), Times: []recipe.Duration{{MinSec: 60, Raw: "a minute"}, {MaxSec: 5}},
		Temperatures: []recipe.Temperature{{Degrees: 180, Scale: "K", Raw: "180"}, {Degrees: 90}},
	}}}
	extract.Clean(&r)
	check.Equal(t, []recipe.Step{{
		Index: 1, Text: "Bake.", Times: []recipe.Duration{{MinSec: 60, MaxSec: 60, Raw: "a minute"}},
		Temperatures: []recipe.Temperature{{Degrees: 180, MaxDegrees: 180, Raw: "180"}},
	}}, r.Steps)
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{"<b>x</b>", "&lt;&amp;lt;", "https://x.example", "<<script>>", "\xff\x00<", "a.com.com/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := recipe.Recipe{Title: text, Steps: []recipe.Step{{Text: "a " + text}}, Ingredients: []recipe.Ingredient{{Item: "a " + text}}}
		extract.Clean(&r)
		for _, got := range []string{r.Title, r.Steps[0].Text, r.Ingredients[0].Item} {
			if strings.ContainsAny(got, "<>") || strings.Contains(strings.ToLower(got), "http://") || strings.ContainsFunc(got, unicode.IsControl) {
				t.Errorf("%q is left of %q", got, text)
			}
		}
		if r.Title != "" {
			holds(t, &r)
		}
	})
}

func TestFailure(t *testing.T) {
	t.Parallel()
	invalid := (&recipe.Recipe{}).Validate()
	for _, c := range []struct {
		name      string
		err       error
		code      contracts.ImportCode
		message   string
		retryable bool
	}{
		{"of a far side", fmt.Errorf("run: %w", extract.Failed(true, io.EOF, "too %s", "slow")), contracts.CodeExtractionFailed, "AI extraction failed: too slow", true},
		{"final", extract.Failed(false, nil, "no"), contracts.CodeExtractionFailed, "AI extraction failed: no", false},
		{"invalid", fmt.Errorf("run: %w", invalid), contracts.CodeInvalidRecipe, "Invalid recipe data from AI", false},
		{"no recipe", fmt.Errorf("run: %w", extract.ErrNoRecipe), contracts.CodeExtractionFailed, "AI extraction failed: no recipe was found in the source", false},
		{"anything else", io.ErrUnexpectedEOF, contracts.CodeExtractionFailed, "AI extraction failed: something went wrong", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := extract.Failure(c.err)
			check.Require(t, got != nil && got.Code == c.code && got.Message == c.message && got.Retryable == c.retryable, "%+v", got)
			cause := errors.Unwrap(c.err)
			check.That(t, cause == nil || errors.Is(c.err, got) || errors.Is(got, c.err), "the cause is lost in %v", got)
		})
	}
	for _, err := range []error{nil, fmt.Errorf("run: %w", context.Canceled), context.DeadlineExceeded} {
		got := extract.Failure(err)
		check.That(t, got == nil, "%v is %v", err, got)
	}
}
