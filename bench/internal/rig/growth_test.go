package rig

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Twice the cost with a hundred times as much is said to be too much.
func TestGrowthThatIsTooMuch(t *testing.T) {
	t.Parallel()
	const g Growth = "turn"
	for last, met := range map[float64]bool{30: true, 40: false} {
		f, got := Figures{}, Results{}
		for i, cpu := range []float64{20, 1000, last} {
			g.Set(f, Times[i], cpu)
		}
		got.Add("r1", f)
		r := NewReport(&Stand{}, got, Options{}, Machine{}, GrowthTargets([]Growth{g}, "r1"))
		check.That(t, len(r.Targets) == 1 && r.Targets[0].Is == last/20 && r.Targets[0].Met == met, "%+v", r.Targets)
	}
}
