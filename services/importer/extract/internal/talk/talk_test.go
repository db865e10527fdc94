package talk_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// segments makes segments of four seconds.
func segments(texts ...string) []caption.Segment {
	out := make([]caption.Segment, len(texts))
	for i, text := range texts {
		out[i] = caption.Segment{Start: time.Duration(4*i) * time.Second, Dur: 4 * time.Second, Text: text}
	}
	return out
}

func texts(sentences []talk.Sentence) []string {
	var out []string
	for _, s := range sentences {
		out = append(out, s.Text)
	}
	return out
}

func cut(t *testing.T, segments []caption.Segment) []talk.Sentence {
	t.Helper()
	return check.Must(talk.Cut(t.Context(), segments))(t)
}

func observe(t *testing.T, sentences []talk.Sentence) []talk.Features {
	t.Helper()
	return check.Must(talk.Observe(t.Context(), sentences))(t)
}

func TestSentences(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		segments []caption.Segment
		want     []string
	}{
		{"none", nil, nil},
		{"empty", segments("", "  "), nil},
		{"one each", segments("Add salt.", "Stir it!"), []string{"Add salt.", "Stir it!"}},
		{"two in one", segments("Add salt. Stir it."), []string{"Add salt.", "Stir it."}},
		{"across", segments("Add the salt", "and the pepper. Stir", "it."), []string{"Add the salt and the pepper.", "Stir it."}},
		{"numbers", segments("Add 2.5 cups of milk.", "Stir."), []string{"Add 2.5 cups of milk.", "Stir."}},
		{
			"unpunctuated at openers", segments("so i've got a pot of water", "and then we add the pasta now stir it well"),
			[]string{"so i've got a pot of water", "and then we add the pasta", "now stir it well"},
		},
		{
			"unpunctuated at orders", segments("throw the onions in the pot", "cook them for five minutes", "bring it to a boil"),
			[]string{"throw the onions in the pot", "cook them for five minutes", "bring it to a boil"},
		},
		{"unpunctuated object", segments("you want to add the salt and stir the sauce"), []string{"you want to add the salt and stir the sauce"}},
		{
			"unpunctuated at pauses",
			[]caption.Segment{{Dur: 2 * time.Second, Text: "a bit of salt"}, {Start: 9 * time.Second, Dur: 2 * time.Second, Text: "some pepper"}},
			[]string{"a bit of salt", "some pepper"},
		},
	} {
		diff := cmp.Diff(c.want, texts(cut(t, c.segments)))
		check.That(t, diff == "", "%s: %s", c.name, diff)
	}
}

func TestSentencesHaveTheTimesOfTheirSegments(t *testing.T) {
	t.Parallel()
	got := cut(t, segments("Add the salt", "and the pepper. Stir", "it."))
	check.That(t, got[0].Start == 0 && got[0].End == 8 && got[1].Start == 4 && got[1].End == 12,
		"%v to %v, %v to %v", got[0].Start, got[0].End, got[1].Start, got[1].End)
}

func TestSentencesAreBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("word ", 5000), strings.Repeat("word, ", 5000) + "."} {
		for _, s := range cut(t, segments(text, text)) {
			check.Require(t, len(s.Words) <= 700, "a sentence of %d words", len(s.Words))
		}
	}
}

// TestFeatures says for each feature a sentence that has it and one that has not.
func TestFeatures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		feature  int
		has, not string
	}{
		{talk.StrongBase, "Add the salt.", "We are adding salt."},
		{talk.StrongIng, "I am chopping onions.", "Chop the onions."},
		{talk.StrongPast, "I have chopped onions.", "Chop the onions."},
		{talk.StrongMore, "Add it and stir it.", "Add it."},
		{talk.MotionBase, "Put it there.", "Add it there."},
		{talk.LightBase, "Let it rest.", "Stir it."},
		{talk.StrongFood, "Chop the onions.", "Chop the wood."},
		{talk.LightFood, "Taste the onions.", "Taste the wood."},
		{talk.VerbPronoun, "Stir it.", "Stir gently."},
		{talk.FoodOne, "Nice onions.", "Nice table."},
		{talk.FoodMore, "Onions, garlic and salt.", "Onions."},
		{talk.AmountFood, "Two cups of flour.", "Some flour."},
		{talk.HeatSaid, "Over medium heat.", "Over there."},
		{talk.Until, "Until it is golden.", "It is golden."},
		{talk.Vessel, "In the skillet.", "In the house."},
		{talk.Plan, "I am going to do it.", "I am doing it."},
		{talk.Sequence, "Next comes this.", "This comes."},
		{talk.First, "So, add it.", "You see, they like it."},
		{talk.Negated, "Do not just stir it.", "Stir it."},
		{talk.PastTalk, "It was great.", "It is great."},
		{talk.Taste, "Delicious.", "Salty."},
		{talk.Option, "If you like.", "As they like."},
		{talk.Story, "My grandmother did.", "My blender did."},
		{talk.IfWhen, "If it burns.", "It burns."},
		{talk.Short, "Stir it.", "Stir it with a large spoon."},
		{talk.Long, "Stir it " + strings.Repeat("very ", 25) + "well.", "Stir it well."},
		{talk.NoVerb, "Hm.", "Stir."},
		{talk.Core, "Add it.", "Proof it."},
		{talk.GiveIt, "Give it a stir.", "Give it."},
		{talk.Habit, "I always do.", "I do."},
	} {
		for i, f := range observe(t, cut(t, segments(c.has, c.not))) {
			got := f[c.feature]
			check.That(t, (got > 0) == (i == 0), "feature %d of %q is %v", c.feature, []string{c.has, c.not}[i], got)
		}
	}
}

func FuzzSentences(f *testing.F) {
	f.Add("Add salt. Stir", "it. now add the milk and then cook it", 3000)
	f.Add("so i've got a pot", "a big half a big half", -1000)
	f.Fuzz(func(t *testing.T, first, second string, millis int) {
		start := time.Duration(millis) * time.Millisecond
		in := []caption.Segment{{Start: start, Dur: 2 * time.Second, Text: first}, {Start: start + 2*time.Second, Dur: 3 * time.Second, Text: second}}
		sentences := cut(t, in)
		for i, p := range talk.Score(observe(t, sentences)) {
			check.That(t, p >= 0 && p <= 1, "%q scores %v", sentences[i].Text, p)
			s := sentences[i].Start
			check.That(t, s == in[0].Start.Seconds() || s == in[1].Start.Seconds(), "%v is the start of no segment", s)
		}
	})
}
