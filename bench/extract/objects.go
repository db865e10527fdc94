package main

import (
	"regexp"
	"strings"

	"github.com/expediter-io/expediter/bench/internal/rig"
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

// objects returns the foods that people marked as what something is done with, each once, but not the dish itself.
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

// nameOf returns the words of a name in the singular. Of "center of dough" the dough is what counts.
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
	for _, w := range short {
		found := false
		for _, l := range long {
			found = found || w == l
		}
		if !found {
			return false
		}
	}
	return true
}

func has(names [][]string, name []string, equal func(a, b []string) bool) bool {
	for _, n := range names {
		if equal(n, name) {
			return true
		}
	}
	return false
}

// judgeObjects compares items with the marked objects. An item that is no marked object is wrong here, although it may be an
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

// stepBaselines are ways to find steps that need no thought.
var stepBaselines = map[string]func(text string) bool{
	"every_sentence": func(string) bool { return true },
	"verb_list":      func(text string) bool { return verb.MatchString(strings.ToLower(text)) },
}
