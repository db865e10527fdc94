package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// spread is the distribution of a figure over videos.
type spread struct {
	Min    float64 `json:"min"`
	P25    float64 `json:"p25"`
	Median float64 `json:"median"`
	P75    float64 `json:"p75"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	slices.Sort(values)
	at := func(q float64) float64 { return values[int(math.Round(q*float64(len(values)-1)))] }
	return spread{at(0), at(0.25), at(0.5), at(0.75), at(1)}
}

// split has the results for one half of the videos.
type split struct {
	Videos    int `json:"videos"`
	Sentences int `json:"sentences"`
	Marked    int `json:"marked"`
	NoRecipe  int `json:"no_recipe"`
	// Steps counts sentences: right when marked and inside the time of a step of the recipe.
	Steps rig.Score `json:"steps"`
	// Starts counts steps of the recipe: right when the timestamp lies in a marked sentence. Missed are marked sentences in
	// which no step begins.
	Starts      rig.Score `json:"starts"`
	Ingredients rig.Score `json:"ingredients"`
	// SameNoun also counts ingredients as marked that only end in the same noun, as "soy sauce" and "tomato sauce" do.
	SameNoun     rig.Score            `json:"ingredients_same_last_noun"`
	Times        rig.Score            `json:"times"`
	Temperatures rig.Score            `json:"temperatures"`
	Spread       spread               `json:"steps_f1_by_video"`
	Baselines    map[string]rig.Score `json:"steps_baselines"`
	Objects      map[string]rig.Score `json:"ingredients_baselines"`
}

func measure(p *printer, dir string) (report, error) {
	videos, err := load(dir)
	if err != nil {
		return report{}, err
	}
	if len(videos) == 0 {
		p.Line("no *.csv in %s: skipped (give --data DIR)", dir)
		return report{OK: true, Skipped: true}, nil
	}
	r := report{OK: true, Extractor: rules.Name}
	for _, half := range []struct {
		name  string
		train bool
		to    **split
	}{{"train", true, &r.Train}, {"validation", false, &r.Validation}} {
		s, err := measureSplit(p, slices.DeleteFunc(slices.Clone(videos), func(v video) bool { return v.train != half.train }))
		if err != nil {
			return report{}, err
		}
		*half.to = s
		p.split(half.name, s)
	}
	return r, nil
}

func measureSplit(p *printer, videos []video) (*split, error) {
	out := &split{Videos: len(videos), Baselines: map[string]rig.Score{}, Objects: map[string]rig.Score{}}
	var total tally
	var articles rig.Counts
	baselines := map[string]rig.Counts{}
	var f1s []float64
	for i := range videos {
		v := &videos[i]
		r, err := rules.New().Extract(context.Background(), v.input())
		if errors.Is(err, extract.ErrNoRecipe) {
			out.NoRecipe++
		} else if err != nil {
			return nil, fmt.Errorf("extract %s: %w", v.address, err)
		}
		t := judge(p, v, &r)
		total.sum(t)
		if t.steps.Right+t.steps.Missed > 0 {
			f1s = append(f1s, t.steps.Score().F1)
		}
		out.Sentences += len(v.rows)
		out.Marked += t.steps.Right + t.steps.Missed
		for name, takes := range stepBaselines {
			c := baselines[name]
			for _, row := range v.rows {
				c.Add(takes(row.text), row.step)
			}
			baselines[name] = c
		}
		articles.Sum(judgeObjects(v, afterArticle(v), same))
		if p.videos {
			p.Line("  %-26s %s  steps %.2f/%.2f  ingredients %.2f/%.2f  (%d sentences, %d marked)", v.title, v.address,
				t.steps.Score().Precision, t.steps.Score().Recall, t.ingredients.Score().Precision, t.ingredients.Score().Recall,
				len(v.rows), t.steps.Right+t.steps.Missed)
		}
	}
	for name, c := range baselines {
		out.Baselines[name] = c.Score()
	}
	out.Objects["after_article"] = articles.Score()
	out.Steps, out.Starts, out.Ingredients = total.steps.Score(), total.starts.Score(), total.ingredients.Score()
	out.SameNoun, out.Times, out.Temperatures = total.nouns.Score(), total.times.Score(), total.temperatures.Score()
	out.Spread = spreadOf(f1s)
	return out, nil
}

func (v *video) input() extract.Input {
	in := extract.Input{Title: v.title, Language: "en", Source: recipe.Source{Type: "youtube", Ref: v.address}}
	for _, r := range v.rows {
		in.Segments = append(in.Segments, caption.Segment{Start: duration(r.start), Dur: duration(r.end - r.start), Text: r.text})
	}
	return in
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// tally has the results for one recipe.
type tally struct{ steps, starts, ingredients, nouns, times, temperatures rig.Counts }

func (t *tally) sum(other tally) {
	t.steps.Sum(other.steps)
	t.starts.Sum(other.starts)
	t.ingredients.Sum(other.ingredients)
	t.nouns.Sum(other.nouns)
	t.times.Sum(other.times)
	t.temperatures.Sum(other.temperatures)
}

// slack forgives rounding to milliseconds.
const slack = 0.002

func judge(p *printer, v *video, r *recipe.Recipe) tally {
	var t tally
	for _, row := range v.rows {
		begun, covered := false, len(stepsIn(row, r)) > 0
		t.steps.Add(covered, row.step)
		if p.errors && covered != row.step {
			p.Line("    %s %s", map[bool]string{true: "wrong ", false: "missed"}[covered], row.text)
		}
		for k := range r.Steps {
			if at := r.Steps[k].Timestamp; at != nil && *at >= row.start-slack && *at < row.end-slack {
				begun = true
				t.starts.Add(true, row.step)
			}
		}
		if row.step && !begun {
			t.starts.Missed++
		}
		t.times.Sum(judgeTimes(row, r))
		t.temperatures.Sum(judgeTemperatures(row, r))
	}
	items := make([]string, len(r.Ingredients))
	for i := range r.Ingredients {
		items[i] = r.Ingredients[i].Item
	}
	t.ingredients, t.nouns = judgeObjects(v, items, same), judgeObjects(v, items, sameNoun)
	return t
}

func (p *printer) split(name string, s *split) {
	p.Line("\n%s: %d videos, %d sentences, %d marked; %d without a recipe", name, s.Videos, s.Sentences, s.Marked, s.NoRecipe)
	p.Line("  %-42s %9s %9s %9s   %s", "", "precision", "recall", "F1", "right, wrong, missed")
	line := func(what string, c rig.Score) {
		p.Line("  %-42s %9.3f %9.3f %9.3f   %d, %d, %d", what, c.Precision, c.Recall, c.F1, c.Right, c.Wrong, c.Missed)
	}
	line("steps: sentences in the time of a step", s.Steps)
	for _, b := range []string{"every_sentence", "verb_list"} {
		line("  baseline "+b, s.Baselines[b])
	}
	p.Line("  %-42s min %.2f, quartiles %.2f %.2f %.2f, max %.2f", "  F1 by video", s.Spread.Min, s.Spread.P25, s.Spread.Median, s.Spread.P75, s.Spread.Max)
	line("starts: timestamps in a marked sentence", s.Starts)
	line("ingredients: against the marked objects", s.Ingredients)
	line("  the same last noun is enough", s.SameNoun)
	line("  baseline after_article", s.Objects["after_article"])
	line("times, in marked sentences", s.Times)
	line("temperatures, in marked sentences", s.Temperatures)
}

var numberWords = strings.NewReplacer(
	"half an hour", "30 minutes", "half hour", "30 minutes", "an hour and a half", "90 minutes", "an hour", "1 hours", "a minute", "1 minutes",
	"a couple of", "2", "a couple", "2", "couple", "2", " to ", "-", " or ", "-", "–", "-",
	"one hundred", "100", "two hundred", "200", "eleven", "11", "fifteen", "15", "eighteen", "18", "twenty five", "25", "thirty five", "35", "forty five", "45", "twenty", "20",
	"thirty", "30", "forty", "40", "fifty", "50", "sixty", "60", "ten", "10", "twelve", "12", "eight", "8", "seven", "7", "six", "6", "five", "5",
	"four", "4", "three", "3", "two", "2", "one", "1",
)

var span = regexp.MustCompile(`(\d+(?:\.\d+)?)(?:\s*-\s*(\d+(?:\.\d+)?))?\s*(second|sec|minute|min|hour|hr|h\b)`)

// bounds reads the seconds of a marked time; 0, 0 when it names no number.
func bounds(text string) (low, high int) {
	m := span.FindStringSubmatch(numberWords.Replace(strings.ToLower(text)))
	if m == nil {
		return 0, 0
	}
	unit := map[byte]float64{'s': 1, 'm': 60, 'h': 3600}[m[3][0]]
	a, _ := strconv.ParseFloat(m[1], 64) //nolint:errcheck // the pattern matched digits
	b := a
	if m[2] != "" {
		b, _ = strconv.ParseFloat(m[2], 64) //nolint:errcheck // the pattern matched digits
	}
	return int(a * unit), int(b * unit)
}

func parts(text string) []string {
	all := regexp.MustCompile(`[;；]`).Split(text, -1)
	return slices.DeleteFunc(all, func(part string) bool { return strings.TrimSpace(part) == "" })
}

// judgeTimes compares the times that people marked in a sentence with those of the steps in which it lies. Signs such as
// "until golden" are left out: people marked none.
func judgeTimes(r row, made *recipe.Recipe) rig.Counts {
	var found [][2]int
	for _, s := range stepsIn(r, made) {
		for _, d := range s.Times {
			if d.Until == "" && said(r.text, d.Raw) {
				found = append(found, [2]int{d.MinSec, d.MaxSec})
			}
		}
	}
	var marked [][2]int
	for _, part := range parts(r.times) {
		low, high := bounds(part)
		marked = append(marked, [2]int{low, high})
	}
	return compare(r, found, marked, func(a, b [2]int) bool { return a == b })
}

// judgeTemperatures does the same for temperatures: degrees by their number, levels by their words.
func judgeTemperatures(r row, made *recipe.Recipe) rig.Counts {
	var found, marked []string
	for _, s := range stepsIn(r, made) {
		for _, t := range s.Temperatures {
			if said(r.text, t.Raw) {
				found = append(found, t.Raw)
			}
		}
	}
	marked = parts(r.temperatures)
	return compare(r, found, marked, func(a, b string) bool {
		return degrees(a) != "" && degrees(a) == degrees(b) || level(a) != "" && level(a) == level(b)
	})
}

var figures = regexp.MustCompile(`\d{2,3}`)

// degrees returns the number of a temperature in digits, however it is written: "350", "three hundred fifty", "three fifty".
func degrees(text string) string {
	text = strings.ToLower(text)
	if found := figures.FindString(text); found != "" {
		return found
	}
	sum, hundreds, last := 0, 0, 0
	for _, w := range letters.FindAllString(text, -1) {
		x, known := spelled[w]
		switch {
		case w == "hundred" && last > 0:
			hundreds, last = last, 0
		case !known:
			continue
		case last > 0 && last < 10 && x >= 10: // "three fifty"
			hundreds, last = last, x
		default:
			last += x
		}
		sum = 100*hundreds + last
	}
	if sum == 0 {
		return ""
	}
	return strconv.Itoa(sum)
}

var spelled = map[string]int{
	"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "fifteen": 15,
	"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}

var levels = regexp.MustCompile(`very|low|medium|high|simmer|boil`)

func level(text string) string {
	return strings.TrimPrefix(strings.Join(levels.FindAllString(strings.ToLower(text), -1), " "), "very ")
}

// compare pairs the findings in a sentence with the marks. Findings in an unmarked sentence are not judged.
func compare[T any](r row, found, marked []T, equal func(a, b T) bool) rig.Counts {
	var c rig.Counts
	if !r.step {
		return c
	}
	used := make([]bool, len(found))
	for _, m := range marked {
		right := false
		for i, f := range found {
			if !used[i] && !right && equal(f, m) {
				used[i], right = true, true
			}
		}
		c.Add(right, true)
	}
	for _, u := range used {
		if !u {
			c.Wrong++
		}
	}
	return c
}

func stepsIn(r row, made *recipe.Recipe) []*recipe.Step {
	var out []*recipe.Step
	for i := range made.Steps {
		s := &made.Steps[i]
		if s.Timestamp != nil && s.End != nil && *s.Timestamp < r.end-slack && *s.End > r.start+slack {
			out = append(out, s)
		}
	}
	return out
}

// said reports whether a mark of a step comes from this sentence and not from another of the same step.
func said(text, raw string) bool {
	squeeze := func(s string) string { return strings.Join(letters2.FindAllString(strings.ToLower(s), -1), " ") }
	return strings.Contains(squeeze(text), squeeze(raw))
}

var letters2 = regexp.MustCompile(`[\p{L}\d]+`)
