package measure_test

import (
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestReadStep(t *testing.T) {
	t.Parallel()
	got := recipe.Step{Text: "Bake at 350 degrees F for 10 to 12 minutes, or until golden; rest for half an hour over low heat."}
	measure.ReadStep("", &got)
	want := recipe.Step{
		Text: got.Text,
		Times: []recipe.Duration{
			{MinSec: 600, MaxSec: 720, Raw: "10 to 12 minutes"},
			{Until: "golden", Raw: "until golden"},
			{MinSec: 1800, MaxSec: 1800, Raw: "half an hour"},
		},
		Temperatures: []recipe.Temperature{
			{Degrees: 350, MaxDegrees: 350, Scale: "F", Raw: "350 degrees F"}, {Level: "low", Raw: "low heat"},
		},
	}
	check.Equal(t, got, want)
	none := recipe.Step{Text: "Stir it."}
	measure.ReadStep("", &none)
	check.That(t, none.Times == nil && none.Temperatures == nil, "%+v", none)
}

func TestReadStepIsBounded(t *testing.T) {
	t.Parallel()
	got := recipe.Step{Text: strings.Repeat("for 5 minutes at 350 F, ", 60)}
	measure.ReadStep("", &got)
	check.That(t, len(got.Times) == recipe.MaxMarks && len(got.Temperatures) == recipe.MaxMarks,
		"%d times and %d temperatures", len(got.Times), len(got.Temperatures))
}
