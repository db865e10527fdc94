package lexicon_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestName(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]lexicon.Entry{
		"restaurant": {Concept: "restaurant", Kind: lexicon.Venue},
		"מסעדת":      {Concept: "restaurant", Kind: lexicon.Venue},
		"המסעדה":     {Concept: "restaurant", Kind: lexicon.Venue},
		"והמסעדה":    {Concept: "restaurant", Kind: lexicon.Venue}, // "the" and "and" are written on to the word
		"مطعم":       {Concept: "restaurant", Kind: lexicon.Venue},
		"ресторан":   {Concept: "restaurant", Kind: lexicon.Venue},
		"εστιατοριο": {Concept: "restaurant", Kind: lexicon.Venue},
		"פיצה":       {Concept: "pizza", Kind: lexicon.Food},
		"ופיצה":      {Concept: "pizza", Kind: lexicon.Food},
		"und":        {Concept: "and", Kind: lexicon.Stop},
		"the":        {Concept: "the", Kind: lexicon.Stop},
		"deli":       {Concept: "deli", Kind: lexicon.Venue},
	} {
		got, ok := lexicon.Name(word)
		check.That(t, ok && got == want, "%s is %+v, want %+v", word, got, want)
	}
	for _, word := range []string{"spago", "וה", "הרצל", "ורד"} {
		e, ok := lexicon.Name(word)
		check.That(t, !ok, "%s is %+v", word, e)
	}
}

func TestWeightsFall(t *testing.T) {
	t.Parallel()
	for k := range lexicon.Stop {
		check.That(t, k.Weight() >= (k+1).Weight(), "kind %d weighs %v, kind %d %v", k, k.Weight(), k+1, (k + 1).Weight())
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"five": "5", "cinq": "5", "пять": "5", "חמש": "5", "twenty": "20"} {
		got, _ := lexicon.Number(word)
		check.That(t, got == want, "%s is %q", word, got)
	}
	for want, words := range map[string]string{
		"1": "first ראשון הראשון первая اول 1st", "2": "2eme", "3": "third tercera שלישית третья ثالث 3rd", "5": "fifth 5th",
		"6": "sixth השישי шестая سادس 6th", "21": "21st",
	} {
		for word := range strings.FieldsSeq(words) {
			got, ok := lexicon.Ordinal(text.Fold(word))
			check.That(t, ok && got == want, "%s is %q, want %q", word, got, want)
		}
	}
	for _, word := range []string{"", "th", "5x", "12345th", "une", "once"} {
		got, ok := lexicon.Ordinal(word)
		check.That(t, !ok, "%q is the %s.", word, got)
		got, ok = lexicon.Number(word)
		check.That(t, !ok, "%q is %s", word, got)
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]lexicon.AddressWord{
		"st": {Canonical: "street", Part: lexicon.Type}, "strasse": {Canonical: "street", Part: lexicon.Type}, "רחוב": {Canonical: "street", Part: lexicon.Type},
		"улица": {Canonical: "street", Part: lexicon.Type}, "شارع": {Canonical: "street", Part: lexicon.Type}, "οδοσ": {Canonical: "street", Part: lexicon.Type},
		"avenida": {Canonical: "avenue", Part: lexicon.Type}, "пр": {Canonical: "avenue", Part: lexicon.Type}, "w": {Canonical: "w", Part: lexicon.Direction},
		"suite": {Canonical: "suite", Part: lexicon.Unit}, "קומה": {Canonical: "floor", Part: lexicon.Unit}, "between": {Canonical: "between", Part: lexicon.Cross},
	} {
		got, ok := lexicon.Address(word)
		check.That(t, ok && got == want, "%s is %+v, want %+v", word, got, want)
	}
	for word, want := range map[string]string{"hauptstrasse": "haupt", "kerkstraat": "kerk", "drottninggatan": "drottning"} {
		stem, ok := lexicon.StreetStem(word)
		check.That(t, ok && stem == want, "%s has stem %q", word, stem)
	}
	_, ok := lexicon.StreetStem("weg")
	check.That(t, !ok, "a word for street is no compound")
}

func TestCityAndRegion(t *testing.T) {
	t.Parallel()
	city := func(joined string) string {
		name, _ := lexicon.City(joined)
		return name
	}
	check.That(t, city("munchen") == city("munich") && city("haifa") == "haifa", "names of cities have changed")
	check.That(t, lexicon.Region("ny") && (lexicon.Region("ישראל") || lexicon.Region("israel")) && !lexicon.Region("haifa"),
		"names of regions have changed")
}
