package enricher_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// lookUps are the calls of the far side, in a test that kills an instance.
type lookUps struct {
	before calls  // those that the far side had read when the instance was killed
	all    calls  // those that it had read at the end, the killed instance's last ones among them
	killed string // the instance
}

// check returns what is wrong with the look-ups of a place whose answer is of the instance found. again reports whether
// the killed instance was in the middle of looking it up: it had asked, and its answer was not stored. Then, and only
// then, one more look-up is right, by another instance, after the kill.
//
// What the far side had read when the instance was killed does not tell what that instance had asked: calls were on
// their way. A call that it read before the kill was made before the kill.
func (l lookUps) check(place, found string) (again bool, err error) {
	var errs []error
	for instance, n := range l.all[place] {
		switch {
		case n > 1:
			errs = append(errs, fmt.Errorf("%s was looked up %d times by %s", place, n, instance))
		case instance == found:
		case instance == l.killed:
			again = true
		default:
			errs = append(errs, fmt.Errorf("%s was looked up by %s, and found by %s", place, instance, found))
		}
	}
	if l.all[place][found] == 0 {
		errs = append(errs, fmt.Errorf("%s was found by %s, which did not look it up", place, found))
	}
	if again && l.before[place][found] > 0 {
		errs = append(errs, fmt.Errorf("%s was looked up by %s and %s before %s was killed", place, l.killed, found, l.killed))
	}
	return again, errors.Join(errs...)
}

// checkOnce fails the test unless all clients have the same answer for every place, and each was looked up once. It
// returns the places that the killed instance was in the middle of.
func checkOnce(t *testing.T, clients []*client, l lookUps) (again []string) {
	t.Helper()
	for _, p := range clients[0].req.Results {
		found := map[string]int{}
		for _, c := range clients {
			found[finder(c.states[p.PlaceID])]++
		}
		if len(found) != 1 || found[""] > 0 {
			t.Errorf("clients were told of %s what these instances found: %v; it was looked up by %v", p.Name, found, l.all[p.Name])
			continue
		}
		for instance := range found {
			redone, err := l.check(p.Name, instance)
			check.Is(t, err, nil)
			if redone {
				again = append(again, p.Name)
			}
		}
	}
	return again
}

// finder returns the instance that found a place, or "".
func finder(state contracts.ProviderState) string {
	if state.Status != contracts.StatusFound || state.URL == nil {
		return ""
	}
	instance, _, _ := strings.Cut(strings.TrimPrefix(*state.URL, linkBase), "/")
	return instance
}

func TestLookUps(t *testing.T) {
	t.Parallel()
	type by = map[string]int
	for name, tt := range map[string]struct {
		before, all by
		found       string
		again       bool
		wrong       string // what the error says; "" for none
	}{
		"once":                                     {by{}, by{"a": 1}, "a", false, ""},
		"once, by the killed instance":             {by{"dead": 1}, by{"dead": 1}, "dead", false, ""},
		"again, as its answer was not stored":      {by{"dead": 1}, by{"dead": 1, "a": 1}, "a", true, ""},
		"again, and the first call was read late":  {by{}, by{"dead": 1, "a": 1}, "a", true, ""},
		"again, though its answer was stored":      {by{"dead": 1}, by{"dead": 1, "a": 1}, "dead", false, "looked up by a, and found by dead"},
		"by two while all lived":                   {by{"a": 1}, by{"a": 1, "b": 1}, "a", false, "looked up by b, and found by a"},
		"twice by one":                             {by{}, by{"a": 2}, "a", false, "2 times by a"},
		"twice by the killed instance":             {by{"dead": 2}, by{"dead": 2, "a": 1}, "a", false, "2 times by dead"},
		"by another while the killed one did it":   {by{"dead": 1, "a": 1}, by{"dead": 1, "a": 1}, "a", true, "before dead was killed"},
		"by another, and the first call came late": {by{"a": 1}, by{"dead": 1, "a": 1}, "a", true, "before dead was killed"},
		"by two after the kill":                    {by{"dead": 1}, by{"dead": 1, "a": 1, "b": 1}, "a", true, "looked up by b, and found by a"},
		"never":                                    {by{}, by{}, "a", false, "did not look it up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			again, err := lookUps{calls{"p": tt.before}, calls{"p": tt.all}, "dead"}.check("p", tt.found)
			check.That(t, (err != nil || tt.wrong == "") && (err == nil || tt.wrong != "" && strings.Contains(err.Error(), tt.wrong)),
				"got %v, want %q", err, tt.wrong)
			check.Same(t, "looked up again by right", again, tt.again)
		})
	}
}
