package rules

import (
	"context"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/services/importer/extract/internal/lexicon"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// readSteps takes the steps from the transcript, and otherwise from chapters or the description.
func (r *reader) readSteps(ctx context.Context) error {
	if r.in.Untimed && len(r.instructions) > 0 { // without times, the written method is better
		return r.writtenSteps(ctx)
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
		return r.writtenSteps(ctx)
	case r.english():
		return r.spokenSteps(ctx, talk.Threshold/2) // unlikely steps are better than none
	}
	return r.measuredSteps(ctx)
}

// measuredSteps takes the sentences with a time or a temperature, which indicate a step in any language.
func (r *reader) measuredSteps(ctx context.Context) error {
	for i := range r.sentences {
		if err := talk.Ended(ctx); err != nil {
			return err
		}
		if s := &r.sentences[i]; measured(s) {
			r.addStep(s.Text, &s.Start, &s.End)
		}
	}
	return nil
}

// writtenSteps takes the steps from the method in the description.
func (r *reader) writtenSteps(ctx context.Context) error {
	for _, text := range r.instructions {
		if err := talk.Ended(ctx); err != nil {
			return err
		}
		r.addStep(text, nil, nil)
	}
	r.warn(WarnNoTimes, "The steps come from the description and have no timestamps.")
	return nil
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
	measure.ReadStep(&step)
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
			measure.ReadStep(step)
		case r.scores[i] >= threshold && text != "":
			r.addStep(text, &s.Start, &s.End)
			last = i
		}
	}
	return nil
}

// goesOn reports whether a sentence names a time, a temperature or a sign, and no action of its own, such as "for about five
// minutes".
func goesOn(s *talk.Sentence) bool {
	if len(s.Words) > 16 {
		return false
	}
	tells := measured(s)
	for i := range s.Words {
		if a, ok := talk.ActionAt(s, i); ok && a.Force >= lexicon.Motion && a.Form <= talk.FormIng {
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

var talkTitles = words.Set(`
intro introduction outro sponsor sponsors sponsored ad ads advert tasting taste subscribe thanks thank bloopers
ending welcome hello goodbye bye review verdict merch history story einleitung intro begrüßung verkostung fazit
introducción despedida prueba introduzione assaggio dégustation conclusion вступление дегустация פתיחה טעימה סיום`)

func isTalkTitle(title string) bool {
	ws := words.Split(words.Plain(title))
	for _, w := range ws {
		if talkTitles[w.Lower] && len(ws) <= 5 {
			return true
		}
	}
	return false
}

// chapterSteps makes a step of every chapter that is no greeting.
func (r *reader) chapterSteps() {
	if len(r.in.Chapters) < 3 {
		return
	}
	for i, c := range r.in.Chapters {
		if isTalkTitle(c.Title) || heading(c.Title) == ingredientsHeading || strings.TrimSpace(c.Title) == "" {
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
	text = strings.TrimSpace(text)
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	text = string(unicode.ToUpper(first)) + text[size:]
	if last, _ := utf8.DecodeLastRuneInString(text); unicode.IsLetter(last) || unicode.IsDigit(last) {
		text += "."
	}
	return text
}
