package rules

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// readIngredients takes the list in the description, or else collects ingredients from the transcript.
func (r *reader) readIngredients(ctx context.Context) error {
	if len(r.listed) > 0 {
		r.recipe.Ingredients = r.listed
		return nil
	}
	if !r.english() {
		return nil
	}
	g := gatherer{}
	for i := range r.sentences {
		if err := talk.Ended(ctx); err != nil {
			return err
		}
		s := &r.sentences[i]
		if !r.outside(s.Start) {
			g.sentence(s, r.scores[i] >= talk.Threshold)
		}
	}
	r.recipe.Ingredients = g.ingredients(words.Stems(words.Split(strings.ToLower(r.recipe.Title))))
	if len(r.recipe.Ingredients) > 0 {
		r.warn(WarnSpoken, "The source has no list of ingredients; they were gathered from what is said.")
	}
	return nil
}

// gatherer collects the foods that the speaker mentions.
type gatherer struct{ found []mention }

// mention is a food in a sentence.
type mention struct {
	ingredient recipe.Ingredient
	stems      []string // of the item
	amount     bool
	acted      bool // an action is on it
}

func (g *gatherer) sentence(s *talk.Sentence, isStep bool) {
	acted := false
	for i := 0; i < len(s.Words); {
		if a, ok := talk.ActionAt(s, i); ok && a.Force >= words.Motion && a.Form <= talk.FormIng && !a.Negated {
			acted = true
			if used, _ := words.Food(s.Stems, i); used <= 1 {
				i++
				continue
			}
		}
		if s.Words[i].Lower == "." || s.Words[i].Lower == "?" {
			acted = false
		}
		if used := g.amount(s, i); used > 0 {
			i += used
			continue
		}
		if used, dependent := words.Food(s.Stems, i); used > 0 {
			from, end := begin(s, i), foodsEnd(s, i+used)
			if !dependent || end > i+used || holdsFood(s.Stems[from:i]) {
				g.add(s, from, end, measure.Amount{}, acted && isStep)
			}
			i = end
			continue
		}
		i++
	}
}

// foodsEnd returns the end of the foods from a position on.
func foodsEnd(s *talk.Sentence, end int) int {
	for end < len(s.Words) && !isVerbHere(s, end) {
		more, _ := words.Food(s.Stems, end)
		if more == 0 {
			break
		}
		end += more
	}
	return end
}

func isVerbHere(s *talk.Sentence, i int) bool {
	a, ok := talk.ActionAt(s, i)
	return ok && a.Form == talk.FormBase && s.Words[i-1].Lower != "," && a.Force == words.Strong && !strings.HasSuffix(s.Words[i].Lower, "s")
}

// begin goes back over the modifiers before a food.
func begin(s *talk.Sentence, i int) int {
	from := i
	for from > 0 && i-from < 4 {
		w := s.Words[from-1].Lower
		if !listed("modifier", w) && !listed("preparation", w) {
			break
		}
		from--
	}
	return from
}

// amount reads an amount and the food after it: "two cups of all purpose flour".
func (g *gatherer) amount(s *talk.Sentence, i int) int {
	a, used := measure.ReadAmount(s.Words, i)
	if used == 0 || a.Unit.Name == "" && (a.Number.Vague || a.Number.Max > 24) {
		return 0
	}
	if _, isTime := measure.ReadDuration(s.Words, i); isTime > 0 {
		return isTime
	}
	at := i + used
	for skip := 0; at < len(s.Words) && skip < 4; skip++ {
		w := s.Words[at]
		if w.Kind != words.Letters {
			break
		}
		if food, dependent := words.Food(s.Stems, at); food > 0 {
			from, end := max(begin(s, at), i+used), foodsEnd(s, at+food)
			if dependent && end == at+food && from == at && a.Unit.Name == "" {
				return 0
			}
			g.add(s, from, end, a, true)
			return end - i
		}
		if !listed("modifier", w.Lower) && !listed("preparation", w.Lower) && !listed("passing", w.Lower) {
			break
		}
		at++
	}
	return 0
}

func (g *gatherer) add(s *talk.Sentence, from, end int, a measure.Amount, acted bool) {
	var item, note []string
	for i := from; i < end; i++ {
		w := s.Words[i]
		if listed("preparation", w.Lower) {
			note = append(note, w.Text)
		} else {
			item = append(item, w.Text)
		}
	}
	if len(item) == 0 {
		return
	}
	m := mention{acted: acted}
	m.ingredient.Item = tidy(strings.Join(item, " "))
	m.ingredient.Note = strings.Join(note, " ")
	if a.Unit.Name != "" || a.Number != (measure.Number{}) {
		setAmount(&m.ingredient, a)
		m.amount = m.ingredient.Qty != "" || m.ingredient.Unit != ""
	}
	m.ingredient.Raw = redact.Clip(s.Text, recipe.MaxNote)
	m.stems = words.Stems(words.Split(words.Plain(strings.ToLower(m.ingredient.Item))))
	g.merge(m)
}

// merge joins mentions of one food. It keeps the longer name and the first amount.
func (g *gatherer) merge(m mention) {
	for i := range g.found {
		f := &g.found[i]
		if f.stems[len(f.stems)-1] != m.stems[len(m.stems)-1] || !contains(f.stems, m.stems) && !contains(m.stems, f.stems) {
			continue
		}
		f.acted = f.acted || m.acted
		if len(m.stems) > len(f.stems) && len(m.stems) <= 4 {
			f.ingredient.Item, f.stems = m.ingredient.Item, m.stems
		}
		f.ingredient.Note = cmp.Or(f.ingredient.Note, m.ingredient.Note)
		if !f.amount && m.amount {
			item := f.ingredient.Item
			f.amount, f.ingredient = true, m.ingredient
			f.ingredient.Item = item
		}
		return
	}
	if len(g.found) < 4*recipe.MaxIngredients {
		g.found = append(g.found, m)
	}
}

func contains(long, short []string) bool {
	return !slices.ContainsFunc(short, func(s string) bool { return !slices.Contains(long, s) })
}

// ingredients returns the foods that have an amount or are acted on, without the dish itself. If there are none, it
// returns the dish; if there is no dish either, all foods that the speaker mentions.
func (g *gatherer) ingredients(title []string) []recipe.Ingredient {
	for _, fits := range []func(*mention) bool{
		func(m *mention) bool { return m.amount || m.acted && !isDish(m.stems, title) },
		func(m *mention) bool { return m.amount || m.acted },
		func(*mention) bool { return true },
	} {
		var out []recipe.Ingredient
		for i := range g.found {
			if fits(&g.found[i]) {
				out = append(out, g.found[i].ingredient)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// isDish reports whether a food is the end of the title: "soup" or "tomato soup" in "tomato soup".
func isDish(item, title []string) bool {
	return len(title) > 0 && contains(title, item) && item[len(item)-1] == title[len(title)-1]
}

// readSteps takes the steps from the transcript, and otherwise from chapters or the description.
func (r *reader) readSteps(ctx context.Context) error {
	if r.in.Untimed && len(r.instructions) > 0 { // without times, the written method is better
		r.writtenSteps()
		return nil
	}
	if r.listOnly() {
		return r.stepsAbove(ctx)
	}
	if r.english() {
		if err := r.spokenSteps(ctx, talk.Threshold); err != nil {
			return err
		}
	} else {
		r.warn(WarnLanguage, "Speech in this language cannot be followed: the steps are chapters, or come from the description, "+
			"or are sentences with a time or a temperature.")
		r.chapterSteps()
	}
	switch {
	case len(r.recipe.Steps) > 0:
		return nil
	case len(r.instructions) > 0:
		r.writtenSteps()
		return nil
	case r.english():
		return r.spokenSteps(ctx, talk.Threshold/2) // unlikely steps are better than none
	}
	for i := range r.sentences { // a time or a temperature indicates a step in any language
		if err := talk.Ended(ctx); err != nil {
			return err
		}
		if s := &r.sentences[i]; measured(s) {
			r.addStep(s.Text, &s.Start, &s.End)
		}
	}
	return nil
}

// stepsAbove takes the steps of an English text without a method from what is above its list, when there are several. Entries of the list
// and notes are no steps, and one or two may be an introduction.
func (r *reader) stepsAbove(ctx context.Context) (err error) {
	if !r.english() {
		return nil
	}
	var above []caption.Segment
	for _, line := range r.text.rest[:min(len(r.text.rest), r.text.intro)] {
		above = append(above, caption.Segment{Text: line})
	}
	if r.sentences, err = talk.Cut(ctx, above); err != nil {
		return err
	}
	if err = errors.Join(r.score(ctx), r.spokenSteps(ctx, talk.Threshold)); len(r.recipe.Steps) < 3 {
		r.recipe.Steps = nil
	}
	return err
}

// writtenSteps takes the steps from the method in the description.
func (r *reader) writtenSteps() {
	for _, text := range r.instructions {
		r.addStep(text, nil, nil)
	}
	if !r.in.Untimed {
		r.warn(WarnNoTimes, "The steps come from the description and have no timestamps.")
	}
}

func (r *reader) english() bool { return !r.foreign }

// measured reports whether a sentence names a time or a temperature.
func measured(s *talk.Sentence) bool {
	for i := range s.Words {
		if d, used := measure.ReadDuration(s.Words, i); used > 0 && d.Max > 0 {
			return true
		}
		if _, used := measure.ReadTemperature(s.Words, i); used > 0 {
			return true
		}
	}
	return false
}

// addStep adds a step, up to one more than a recipe may have. The additional step shows that steps were left out.
func (r *reader) addStep(text string, start, end *float64) {
	if len(r.recipe.Steps) > recipe.MaxSteps {
		return
	}
	step := recipe.Step{Index: len(r.recipe.Steps) + 1, Text: sentenceCase(text)}
	if start != nil && !r.in.Untimed {
		from, to := millis(*start), millis(max(*start, *end))
		step.Timestamp, step.End = &from, &to
	}
	measure.ReadStep(r.language, &step)
	r.recipe.Steps = append(r.recipe.Steps, step)
}

// millis rounds sums of starts and durations to milliseconds.
func millis(s float64) float64 { return math.Round(s*1000) / 1000 }

// spokenSteps makes a step of every sentence with an action. A sentence that only continues a step is joined to it.
func (r *reader) spokenSteps(ctx context.Context, threshold float64) error {
	last := -2 // the sentence that the last step ends with
	for i := range r.sentences {
		if err := talk.Ended(ctx); err != nil {
			return err
		}
		s := &r.sentences[i]
		if r.outside(s.Start) {
			continue
		}
		text := imperative(s)
		switch {
		case last == i-1 && last >= 0 && goesOn(s) && text != "":
			last = i
			step := &r.recipe.Steps[len(r.recipe.Steps)-1]
			if len(step.Text)+len(text) > recipe.MaxStep/2 {
				r.addStep(text, &s.Start, &s.End)
				continue
			}
			step.Text += " " + sentenceCase(text)
			if step.End != nil {
				*step.End = max(*step.End, millis(s.End))
			}
			step.Times, step.Temperatures = nil, nil
			measure.ReadStep(r.language, step)
		case r.scores[i] >= threshold && text != "":
			r.addStep(text, &s.Start, &s.End)
			last = i
		}
	}
	return nil
}

// goesOn reports whether a sentence names a time, a temperature or a sign, and no action, such as "for about five
// minutes".
func goesOn(s *talk.Sentence) bool {
	if len(s.Words) > 16 {
		return false
	}
	tells := measured(s)
	for i := range s.Words {
		if a, ok := talk.ActionAt(s, i); ok && a.Force >= words.Motion && a.Form <= talk.FormIng {
			return false
		}
		if _, used := measure.ReadUntil(s.Words, i); used > 0 {
			tells = true
		}
	}
	return tells
}

// outside reports whether a time lies in a chapter without cooking.
func (r *reader) outside(at float64) bool {
	for i, c := range r.in.Chapters {
		if start, end := r.chapter(i); at >= start && (at < end || end <= start) {
			return isTalkTitle(c.Title)
		}
	}
	return false
}

// chapter returns the bounds of a chapter in seconds.
func (r *reader) chapter(i int) (start, end float64) {
	start = max(0, r.in.Chapters[i].Start.Seconds())
	if i+1 < len(r.in.Chapters) {
		end = r.in.Chapters[i+1].Start.Seconds()
	}
	return start, max(start, end)
}

func isTalkTitle(title string) bool {
	ws := words.Split(words.Plain(title))
	return len(ws) <= 5 && slices.ContainsFunc(ws, func(w words.Word) bool { return listed("talk", w.Lower) })
}

// chapterSteps makes a step of every chapter that is no greeting.
func (r *reader) chapterSteps() {
	if len(r.in.Chapters) < 3 {
		return
	}
	for i, c := range r.in.Chapters {
		if kind, _ := heading(c.Title, false); isTalkTitle(c.Title) || kind == ingredientsHeading || strings.TrimSpace(c.Title) == "" {
			continue
		}
		start, end := r.spokenAt(r.chapter(i))
		r.addStep(c.Title, &start, &end)
	}
}

// spokenAt moves the beginning of a chapter to the beginning of its first sentence, if it has one.
func (r *reader) spokenAt(start, end float64) (float64, float64) {
	for i := range r.sentences {
		if s := &r.sentences[i]; s.End > start && s.Start < end {
			return max(s.Start, start), end
		}
	}
	return start, end
}

// sentenceCase returns a text with a capital letter at the beginning and a mark at the end.
func sentenceCase(text string) string {
	text = capitalized(strings.TrimSpace(text))
	if last, _ := utf8.DecodeLastRuneInString(text); unicode.IsLetter(last) || unicode.IsDigit(last) {
		text += "."
	}
	return text
}

func capitalized(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + text[size:]
}
