package measure

import (
	"slices"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestReadAmount(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/amounts.tsv") {
		ws := split(row[0])
		a, used := ReadAmount(ws, 0)
		got := []string{row[0], a.Number.Text(), a.Unit.Name, a.Note, rested(ws, used)}
		check.That(t, slices.Equal(got, row), "got %q, want %q", got, row)
	}
}

func TestUnitsAreRead(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, list := range units {
		for _, e := range list {
			names[e.unit.Name] = true
			check.That(t, len(e.words) != 0 && e.unit.Name != "", "%+v is incomplete", e)
		}
	}
	check.That(t, len(names) >= 50, "%d units", len(names))
	for name := range names {
		ws := split(name)
		u, used := ReadUnit(ws, 0)
		check.That(t, u.Name == name && used == len(ws), "%q is read as %q", name, u.Name)
	}
}
