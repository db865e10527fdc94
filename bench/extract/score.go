package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// spread is how a figure differs between videos.
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

// split is how one half of the videos came out.
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
	// SameNoun takes ingredients for the marked ones that only end in the same noun, as "soy sauce" and "tomato sauce" do.
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
		p.linef("no *.csv in %s: skipped (give --data DIR)", dir)
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
	baselines, objects := map[string]rig.Counts{}, map[string]rig.Counts{}
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
		c := objects["after_article"]
		c.Sum(judgeObjects(v, afterArticle(v), same))
		objects["after_article"] = c
		if p.videos {
			p.linef("  %-26s %s  steps %.2f/%.2f  ingredients %.2f/%.2f  (%d sentences, %d marked)", v.title, v.address,
				t.steps.Score().Precision, t.steps.Score().Recall, t.ingredients.Score().Precision, t.ingredients.Score().Recall,
				len(v.rows), t.steps.Right+t.steps.Missed)
		}
	}
	for name, c := range baselines {
		out.Baselines[name] = c.Score()
	}
	for name, c := range objects {
		out.Objects[name] = c.Score()
	}
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

// tally is how one recipe came out.
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
	begun := make([]bool, len(v.rows))
	for i, row := range v.rows {
		covered := false
		for k := range r.Steps {
			s := &r.Steps[k]
			covered = covered || s.Timestamp != nil && s.End != nil && *s.Timestamp < row.end-slack && *s.End > row.start+slack
		}
		t.steps.Add(covered, row.step)
		if p.errors && covered != row.step {
			p.linef("    %s %s", map[bool]string{true: "wrong ", false: "missed"}[covered], row.text)
		}
		for k := range r.Steps {
			if at := r.Steps[k].Timestamp; at != nil && *at >= row.start-slack && *at < row.end-slack {
				begun[i] = true
				t.starts.Add(true, row.step)
			}
		}
		if row.step && !begun[i] {
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
	p.linef("\n%s: %d videos, %d sentences, %d marked; %d without a recipe", name, s.Videos, s.Sentences, s.Marked, s.NoRecipe)
	p.linef("  %-42s %9s %9s %9s   %s", "", "precision", "recall", "F1", "right, wrong, missed")
	line := func(what string, c rig.Score) {
		p.linef("  %-42s %9.3f %9.3f %9.3f   %d, %d, %d", what, c.Precision, c.Recall, c.F1, c.Right, c.Wrong, c.Missed)
	}
	line("steps: sentences in the time of a step", s.Steps)
	for _, b := range []string{"every_sentence", "verb_list"} {
		line("  baseline "+b, s.Baselines[b])
	}
	p.linef("  %-42s min %.2f, quartiles %.2f %.2f %.2f, max %.2f", "  F1 by video", s.Spread.Min, s.Spread.P25, s.Spread.Median, s.Spread.P75, s.Spread.Max)
	line("starts: timestamps in a marked sentence", s.Starts)
	line("ingredients: against the marked objects", s.Ingredients)
	line("  the same last noun is enough", s.SameNoun)
	line("  baseline after_article", s.Objects["after_article"])
	line("times, in marked sentences", s.Times)
	line("temperatures, in marked sentences", s.Temperatures)
}
