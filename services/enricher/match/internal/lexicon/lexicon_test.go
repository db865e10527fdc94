package lexicon_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestName(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]lexicon.Entry{
		"restaurant": {Concept: "restaurant", Kind: lexicon.Venue},
		"מסעדת":      {Concept: "restaurant", Kind: lexicon.Venue},
		"המסעדה":     {Concept: "restaurant", Kind: lexicon.Venue},
		"مطعم":       {Concept: "restaurant", Kind: lexicon.Venue},
		"ресторан":   {Concept: "restaurant", Kind: lexicon.Venue},
		"εστιατοριο": {Concept: "restaurant", Kind: lexicon.Venue},
		"פיצה":       {Concept: "pizza", Kind: lexicon.Food},
		"und":        {Concept: "and", Kind: lexicon.Stop},
		"the":        {Concept: "the", Kind: lexicon.Stop},
		"deli":       {Concept: "deli", Kind: lexicon.Venue},
	} {
		if got, ok := lexicon.Name(word); !ok || got != want {
			t.Errorf("%s is %+v, want %+v", word, got, want)
		}
	}
	if e, ok := lexicon.Name("spago"); ok {
		t.Errorf("spago is %+v", e)
	}
}

func TestWeightsFall(t *testing.T) {
	t.Parallel()
	for k := range lexicon.Stop {
		if k.Weight() <= (k + 1).Weight() {
			t.Errorf("kind %d weighs %v, kind %d %v", k, k.Weight(), k+1, (k + 1).Weight())
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"five": "5", "cinq": "5", "пять": "5", "חמש": "5", "twenty": "20"} {
		if got, _ := lexicon.Number(word); got != want {
			t.Errorf("%s is %q", word, got)
		}
	}
	for word, want := range map[string]string{"fifth": "5", "5th": "5", "3rd": "3", "21st": "21", "2eme": "2"} {
		if got, _ := lexicon.Ordinal(word); got != want {
			t.Errorf("%s is %q", word, got)
		}
	}
	for _, word := range []string{"", "th", "5x", "12345th", "une", "once"} {
		if got, ok := lexicon.Ordinal(word); ok {
			t.Errorf("%q is the %s.", word, got)
		}
		if got, ok := lexicon.Number(word); ok {
			t.Errorf("%q is %s", word, got)
		}
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
		if got, ok := lexicon.Address(word); !ok || got != want {
			t.Errorf("%s is %+v, want %+v", word, got, want)
		}
	}
	for word, want := range map[string]string{"hauptstrasse": "haupt", "kerkstraat": "kerk", "drottninggatan": "drottning"} {
		if stem, _, ok := lexicon.StreetSuffix(word); !ok || stem != want {
			t.Errorf("%s has stem %q", word, stem)
		}
	}
	if _, _, ok := lexicon.StreetSuffix("weg"); ok {
		t.Error("a word for street is no compound")
	}
}

func TestCityAndRegion(t *testing.T) {
	t.Parallel()
	if lexicon.City("munchen") != lexicon.City("munich") || lexicon.City("haifa") != "haifa" {
		t.Error("names of cities have changed")
	}
	if !lexicon.Region("ny") || !lexicon.Region("ישראל") && !lexicon.Region("israel") || lexicon.Region("haifa") {
		t.Error("names of regions have changed")
	}
}
