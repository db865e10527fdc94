package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestResumptionCutsOffAnUnfinishedLine: a run that was killed may have written half a row.
func TestResumptionCutsOffAnUnfinishedLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "results.jsonl")
	check.OK(t, os.WriteFile(path, []byte("{\"placeId\":\"p1\"}\n{\"placeId\":\"p"), 0o600))
	r, err := openResumption(path)
	check.OK(t, err)
	check.OK(t, check.Err(r.file.WriteString("next\n")))
	check.OK(t, r.file.Close())
	got, err := os.ReadFile(path)
	check.OK(t, err)
	if string(got) != "{\"placeId\":\"p1\"}\nnext\n" || r.rows != 1 {
		t.Errorf("%d rows, then %q", r.rows, got)
	}
}
