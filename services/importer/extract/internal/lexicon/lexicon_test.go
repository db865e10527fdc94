package lexicon_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract/internal/lexicon"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVerb(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]lexicon.Force{
		"simmer": lexicon.Strong, "chopping": lexicon.Strong, "beaten": lexicon.Strong,
		"put": lexicon.Motion, "thrown": lexicon.Motion, "took": lexicon.Motion,
		"cook": lexicon.Motion, "let": lexicon.Light, "made": lexicon.Light,
		"subscribe": lexicon.None, "delicious": lexicon.None, "": lexicon.None,
	} {
		check.Same(t, word, lexicon.Verb(words.Stem(word)), want)
	}
}

func TestFood(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text      string
		used      int
		dependent bool
	}{
		{"onions", 1, false},
		{"soy sauce", 2, false},
		{"sauce", 1, true},
		{"half and half", 3, false},
		{"half-and-half", 5, false},
		{"bell peppers", 2, false},
		{"bay leaves", 1, false},
		{"table", 0, false},
		{"", 0, false},
	} {
		stems := words.Stems(words.Split(c.text))
		used, dependent := lexicon.Food(stems, 0)
		check.That(t, used == c.used && dependent == c.dependent, "%q is %d words, %v", c.text, used, dependent)
	}
}

func TestThing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"skillet": "vessel", "if you like": "option", "next": "sequence", "delicious": "taste",
		"grandmother": "story", "nothing": "",
	} {
		check.Same(t, text, lexicon.Thing(words.Stems(words.Split(text)), 0), want)
	}
}
