package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/expediter-io/expediter/cmd/expediter/internal/enrich"
	"github.com/expediter-io/expediter/pkg/contracts"
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

// interrupting is an enricher whose caller is interrupted by a person when it has been asked for so many places; 0: never.
type interrupting struct {
	fake

	asked     atomic.Int64
	after     int64
	interrupt context.CancelFunc
}

func (i *interrupting) Enrich(ctx context.Context, req contracts.EnrichRequest) (enrich.Answer, error) {
	if i.asked.Add(int64(len(req.Results))) > i.after && i.after > 0 {
		i.interrupt()
		<-ctx.Done()
		return enrich.Answer{}, ctx.Err()
	}
	return i.fake.Enrich(ctx, req)
}

// TestAnInterruptSaysHowFarItCame: by the rows that are in the file, from where the next run goes on to the same results.
func TestAnInterruptSaysHowFarItCame(t *testing.T) {
	t.Parallel()
	const rows = 2000
	path := filepath.Join(t.TempDir(), "results.jsonl")
	written := func() []string {
		data, err := os.ReadFile(path)
		check.OK(t, err)
		return strings.SplitAfter(strings.TrimSuffix(string(data), "\n"), "\n")
	}
	for _, after := range []int64{500, 700, 0} {
		ctx, interrupt := context.WithCancel(t.Context())
		e := &interrupting{after: after, interrupt: interrupt}
		var stderr bytes.Buffer
		code := Run(ctx, Config{
			OpenEnricher: func(context.Context, EnricherOptions) (enrich.Enricher, func() error, error) {
				return e, func() error { return nil }, nil
			},
			Stderr: &stderr, Stdin: &sheet{n: rows}, Stdout: io.Discard,
		}, []string{"enrich", "--output", "jsonl", "--format", "csv", "--resume", path, "-"})
		interrupt()
		want := fmt.Sprintf("interrupted after %d rows", len(written()))
		if (code == 0) != (after == 0) || strings.Contains(stderr.String(), want) != (after > 0) {
			t.Errorf("exits with %d: %q, want %q when it was interrupted", code, &stderr, want)
		}
	}
	got := written()
	for i, line := range got {
		if want := fmt.Sprintf(`"placeId":"p%d"`, i+1); !strings.Contains(line, want) {
			t.Fatalf("line %d is %s, want %s", i+1, line, want)
		}
	}
	check.Same(t, "rows", len(got), rows)
}
