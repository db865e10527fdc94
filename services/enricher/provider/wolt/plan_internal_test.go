package wolt

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
)

func TestPlan(t *testing.T) {
	t.Parallel()

	languages := []string{"en", "he"}
	tests := map[string]struct {
		place match.Place
		want  []query
	}{
		"latin":        {match.Place{Name: "Giraffe"}, []query{{"en", "Giraffe"}, {"he", "Giraffe"}}},
		"hebrew first": {match.Place{Name: "ג'ירף"}, []query{{"he", "ג'ירף"}, {"en", "ג'ירף"}}},
		"generic words": {
			match.Place{Name: "מסעדת מוזס"},
			[]query{{"he", "מסעדת מוזס"}, {"he", "מוזס"}, {"en", "מסעדת מוזס"}},
		},
		"branch": {
			match.Place{Name: "Moses | Rothschild"},
			[]query{{"en", "Moses | Rothschild"}, {"en", "Moses"}, {"he", "Moses | Rothschild"}},
		},
		"nothing but generic words": {match.Place{Name: "The Restaurant"}, []query{{"en", "The Restaurant"}, {"he", "The Restaurant"}}},
		"aliases": {
			match.Place{Name: "Taizu", Aliases: []string{"טאיזו", "", "taizu"}},
			[]query{{"en", "Taizu"}, {"he", "Taizu"}, {"he", "טאיזו"}},
		},
		"other scripts": {match.Place{Name: "Пушкин"}, []query{{"en", "Пушкин"}, {"he", "Пушкин"}}},
		"cleaned":       {match.Place{Name: "\u200fA \x00\n B\u202e"}, []query{{"en", "A B"}, {"he", "A B"}}},
		"no name":       {match.Place{Name: " \u200b\t", Address: "1 Main St"}, nil},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := plan(test.place, languages, 9)
			check.Equal(t, test.want, got, cmp.AllowUnexported(query{}))

			check.That(t, len(test.want) <= 1 || len(plan(test.place, languages, 1)) == 1, "the limit is not kept")
		})
	}
}

func TestQueriesAreBounded(t *testing.T) {
	t.Parallel()

	for _, q := range plan(match.Place{Name: strings.Repeat("שלום ", 2000)}, []string{"he"}, 4) {
		n := utf8.RuneCountInString(q.text)
		check.That(t, n <= maxQuery && utf8.ValidString(q.text), "query of %d runes", n)
	}
}
