package words_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

func TestVerb(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]words.Force{
		"simmer": words.Strong, "chopping": words.Strong, "beaten": words.Strong,
		"put": words.Motion, "thrown": words.Motion, "took": words.Motion,
		"cook": words.Motion, "let": words.Light, "made": words.Light,
		"subscribe": words.None, "delicious": words.None, "": words.None,
	} {
		check.Equal(t, words.Verb(words.Stem(word)), want, word)
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
		used, dependent := words.Food(stems, 0)
		check.That(t, used == c.used && dependent == c.dependent, "%q is %d words, %v", c.text, used, dependent)
	}
}

func TestThing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"skillet": "vessel", "if you like": "option", "next": "sequence", "delicious": "taste",
		"grandmother": "story", "nothing": "",
	} {
		check.Equal(t, words.Thing(words.Stems(words.Split(text)), 0), want, text)
	}
}
