package wolt

import (
	"math"
	"testing"
	"time"
)

func TestSearchesAtOnce(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		config Config
		want   int
	}{
		"default":             {Config{}, 5},
		"twice the rate":      {Config{Rate: 4}, 10},
		"half the time":       {Config{Timeout: 10 * time.Second}, 2},
		"one call each":       {Config{MaxCalls: 1}, 20},
		"hardly any rate":     {Config{Rate: 0.001}, 1},
		"hardly a limit":      {Config{Rate: 1e300}, maxSearches},
		"no limit":            {Config{Rate: math.Inf(1)}, maxSearches},
		"all the calls there": {Config{MaxCalls: math.MaxInt}, 1},
	}

	for name, test := range tests {
		if got := test.config.withDefaults().searchesAtOnce(); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
