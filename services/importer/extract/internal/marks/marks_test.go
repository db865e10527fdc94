package marks_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract/internal/marks"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRead(t *testing.T) {
	t.Parallel()
	got := recipe.Step{Text: "Bake at 350 degrees F for 10 to 12 minutes, or until golden; rest for half an hour over low heat."}
	marks.Read(&got)
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
	check.Equal(t, want, got)
	none := recipe.Step{Text: "Stir it."}
	marks.Read(&none)
	check.That(t, none.Times == nil && none.Temperatures == nil, "%+v", none)
}

func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	got := recipe.Step{Text: strings.Repeat("for 5 minutes at 350 F, ", 60)}
	marks.Read(&got)
	check.That(t, len(got.Times) == recipe.MaxMarks && len(got.Temperatures) == recipe.MaxMarks,
		"%d times and %d temperatures", len(got.Times), len(got.Temperatures))
}
