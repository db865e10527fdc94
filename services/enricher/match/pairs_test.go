package match_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
)

// TestPairs compares a place with candidates that must be linked, must not be, or leave it open.
func TestPairs(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/pairs.tsv") {
		t.Run(row[1], func(t *testing.T) {
			t.Parallel()
			query, candidates := placeOf(t, row[1]), make([]match.Place, 0, 2)
			for _, text := range row[2:] {
				candidates = append(candidates, placeOf(t, text))
			}
			d := match.Best(query, candidates)
			right := slices.Contains(strings.Split(row[0], ","), string(d.Outcome)) && (d.Outcome != match.Found || d.Index == 0)
			check.That(t, right, "candidate %d is %s, want %s: %s\n%s", d.Index, d.Outcome, row[0], strings.Join(row[2:], "\n"), d.Evidence)
			if len(candidates) == 1 {
				check.Equal(t, match.Best(candidates[0], []match.Place{query}).Outcome, d.Outcome, "the other way round")
			}
		})
	}
}

// placeOf reads "name | address | city | phone | lat,lng".
func placeOf(t *testing.T, text string) match.Place {
	t.Helper()
	fields := append(strings.Split(text, "|"), make([]string, 5)...)
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	p := match.Place{Name: fields[0], Address: fields[1], City: fields[2], Phone: fields[3]}
	if lat, lng, ok := strings.Cut(fields[4], ","); ok {
		p.Location = at(check.Must(strconv.ParseFloat(lat, 64))(t), check.Must(strconv.ParseFloat(lng, 64))(t))
	}
	return p
}
