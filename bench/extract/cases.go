package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/extract/rules/rulestest"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/source/sourcetest"
)

// things are objects of cooks that nobody eats, and words that stand for a food.
var things = set(`heat pan lid pot oven bowl spatula everything it them that this mixture mix ingredient ingredients surface
edge edges center bottom side sides hole cover plate temperature all rest stove dish pieces piece layer inside top liquid contents foil`)

func set(list string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		out[w] = true
	}
	return out
}

var separators = regexp.MustCompile(`[;,/&；，、]|\band\b|\bor\b|\bwith\b`)

// objects returns the foods that people marked as objects of an action, each once, but not the dish itself.
func (v *video) objects() [][]string {
	var out [][]string
	for _, r := range v.rows {
		if !r.step {
			continue
		}
		for _, part := range separators.Split(strings.ToLower(r.objects), -1) {
			name := nameOf(part)
			if len(name) == 0 || things[name[len(name)-1]] || strings.Contains(strings.ToLower(v.title), strings.Join(name, " ")) {
				continue
			}
			if !has(out, name, same) {
				out = append(out, name)
			}
		}
	}
	return out
}

var letters = regexp.MustCompile(`[\p{L}]+`)

// nameOf returns the words of a name in the singular. In "center of dough" only the dough counts.
func nameOf(text string) []string {
	if _, after, ok := strings.Cut(text, " of "); ok {
		text = after
	}
	var out []string
	for _, w := range letters.FindAllString(strings.ToLower(text), -1) {
		switch {
		case w == "the" || w == "a" || w == "some" || w == "of":
			continue
		case strings.HasSuffix(w, "ies") && len(w) > 4:
			w = w[:len(w)-3] + "y"
		case strings.HasSuffix(w, "oes") || strings.HasSuffix(w, "shes") || strings.HasSuffix(w, "ches"):
			w = w[:len(w)-2]
		case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && len(w) > 3:
			w = w[:len(w)-1]
		}
		out = append(out, w)
	}
	return out
}

// same reports whether one name is a part of the other.
func same(a, b []string) bool { return within(a, b) || within(b, a) }

// sameNoun reports whether two names end in the same noun, such as "tomato sauce" and "soy sauce", or are the same.
func sameNoun(a, b []string) bool { return a[len(a)-1] == b[len(b)-1] || same(a, b) }

func within(short, long []string) bool {
	return !slices.ContainsFunc(short, func(w string) bool { return !slices.Contains(long, w) })
}

func has(names [][]string, name []string, equal func(a, b []string) bool) bool {
	return slices.ContainsFunc(names, func(n []string) bool { return equal(n, name) })
}

// judgeObjects compares items with the marked objects. An item that is not a marked object counts as wrong, although it may be an
// ingredient: people marked objects in the sentences of steps only.
func judgeObjects(v *video, items []string, equal func(a, b []string) bool) rig.Counts {
	var c rig.Counts
	gold := v.objects()
	var names [][]string
	for _, item := range items {
		name := nameOf(item)
		if len(name) == 0 || has(names, name, equal) {
			continue
		}
		names = append(names, name)
		if !has(gold, name, equal) {
			c.Wrong++
		}
	}
	for _, g := range gold {
		c.Add(has(names, g, equal), true)
	}
	return c
}

var article = regexp.MustCompile(`\b(?:the|some|of|your)\s+([a-z]{3,})`)

// afterArticle takes every word after an article for an ingredient.
func afterArticle(v *video) []string {
	var out []string
	for _, r := range v.rows {
		for _, m := range article.FindAllStringSubmatch(strings.ToLower(r.text), -1) {
			if !things[m[1]] && m[1] != "the" {
				out = append(out, m[1])
			}
		}
	}
	return out
}

var verb = regexp.MustCompile(`\b(?:add|put|chop|cut|mix|stir|cook|fry|boil|bake|pour|place|slic|peel|season|sprinkl|blend|simmer|brown|drain|melt|saut|grill|roast|heat|whisk|dic|minc|grat|spread|cover|turn|flip|remov|combin|serv|roll|toss|marinat|wash|rins|beat|squeez|fold|knead|preheat)\w*`)

// stepBaselines are trivial ways to find steps.
var stepBaselines = map[string]func(text string) bool{
	"every_sentence": func(string) bool { return true },
	"verb_list":      func(text string) bool { return verb.MatchString(strings.ToLower(text)) },
}

// pages has the results for pages with recipes, which were written by hand in the usual forms of pages.
type pages struct {
	Pages int `json:"pages"`
	Whole int `json:"whole"` // the number of pages with every fact right, and no other
	// Facts is the score over titles, ingredients, steps, times and so on.
	Facts rig.Score `json:"facts"`
}

func measurePages(p *printer) (*pages, error) {
	list, err := sourcetest.Pages()
	if err != nil {
		return nil, fmt.Errorf("load pages: %w", err)
	}
	out := &pages{Pages: len(list)}
	var total rig.Counts
	for _, page := range list {
		got, err := page.Read(context.Background())
		if _, refused := errors.AsType[*source.Error](err); err != nil && !refused {
			return nil, fmt.Errorf("read a page: %w", err)
		}
		c := judgeFacts(got, page.Want)
		total.Sum(c)
		if c.Wrong+c.Missed == 0 {
			out.Whole++
		} else {
			p.Line("  page %s: %d facts missed, %d wrong", page.Name, c.Missed, c.Wrong)
		}
	}
	out.Facts = total.Score()
	p.Line("%d pages, %d of them whole; facts: %d right, %d wrong, %d missed", out.Pages, out.Whole, total.Right, total.Wrong, total.Missed)
	return out, nil
}

// judgeFacts compares the facts of a recipe with those that a person found on the page.
func judgeFacts(got, want []string) (c rig.Counts) {
	left := slices.Clone(got)
	for _, fact := range want {
		at := slices.Index(left, fact)
		c.Add(at >= 0, true)
		if at >= 0 {
			left = slices.Delete(left, at, at+1)
		}
	}
	c.Wrong += len(left)
	return c
}

// verdicts has the results for the texts of one source.
type verdicts struct {
	Cooking  int `json:"cooking"`
	Refused  int `json:"cooking_refused"`
	Other    int `json:"other"`
	Taken    int `json:"other_taken"`
	Doubtful int `json:"other_taken_doubtful"` // of those, with a warning
}

// measureTalks reads texts (*.txt) and captions of talks in which nobody cooks (*.vtt, *.srt), and counts the recipes.
func measureTalks(p *printer, paths []string) (map[string]*verdicts, error) {
	talks, err := loadTalks(paths)
	if err != nil {
		return nil, err
	}
	out := map[string]*verdicts{}
	for _, t := range talks {
		r, err := rules.New().Extract(context.Background(), t.Input)
		if err != nil && !errors.Is(err, extract.ErrNoRecipe) {
			return nil, fmt.Errorf("extract %s: %w", t.Input.Title, err)
		}
		v := cmp.Or(out[t.Source], &verdicts{})
		out[t.Source] = v
		switch {
		case t.Cooking && err != nil:
			v.Refused++
			p.Line("  refused: %s: %v", t.Input.Title, err)
		case !t.Cooking && err == nil:
			v.Taken++
			doubtful := slices.ContainsFunc(r.Warnings, func(w recipe.Warning) bool { return w.Code == rules.WarnDoubtful })
			if doubtful {
				v.Doubtful++
			}
			p.Line("  taken: %s (doubtful %v)", t.Input.Title, doubtful)
		}
		if t.Cooking {
			v.Cooking++
		} else {
			v.Other++
		}
	}
	for source, v := range out {
		p.Line("%s: %d with cooking, %d of them refused; %d others, %d of them made a recipe, %d of those with a warning",
			source, v.Cooking, v.Refused, v.Other, v.Taken, v.Doubtful)
	}
	return out, nil
}

// loadTalks reads files and folders of them; a missing one has no texts.
func loadTalks(paths []string) ([]rulestest.Text, error) {
	var out []rulestest.Text
	for _, path := range paths {
		names := []string{path}
		if found, err := filepath.Glob(filepath.Join(path, "*.*t*")); err == nil && len(found) > 0 {
			names = found
		}
		for _, name := range names {
			data, err := os.ReadFile(name) //nolint:gosec // the path is the caller's
			switch {
			case errors.Is(err, os.ErrNotExist):
				continue
			case err != nil:
				return nil, fmt.Errorf("read talks: %w", err)
			case filepath.Ext(name) == ".txt":
				out = append(out, rulestest.Read(filepath.Base(name), string(data))...)
				continue
			}
			track, err := caption.Parse(strings.NewReader(string(data)), caption.Options{})
			if err != nil {
				return nil, fmt.Errorf("read the captions of %s: %w", name, err)
			}
			in := extract.Input{Title: filepath.Base(name), Segments: track.Transcript().Segments}
			out = append(out, rulestest.Text{Source: filepath.Base(path), Input: in})
		}
	}
	return out, nil
}
