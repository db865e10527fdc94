package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/expediter-io/expediter/cmd/expediter/internal/enrich"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// sheet is a CSV file of n rows that is made while it is read.
type sheet struct {
	n, next int
	buf     bytes.Buffer
}

func (f *sheet) Read(p []byte) (int, error) {
	for f.buf.Len() < len(p) && f.next <= f.n {
		if f.next == 0 {
			f.buf.WriteString("id,name,address,city,note\n")
		} else {
			fmt.Fprintf(&f.buf, "p%d,Kiosk %d,Herzl %d,Haifa,%s\n", f.next, f.next, f.next%300, strings.Repeat("x", 1000))
		}
		f.next++
	}
	return f.buf.Read(p)
}

// scale weighs what is alive while places are asked for.
type scale struct {
	fake

	mu    sync.Mutex
	asked int
	heap  map[int]uint64 // bytes, by thousands of places
}

func (s *scale) Enrich(ctx context.Context, req contracts.EnrichRequest) (enrich.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.asked / 20_000
	s.asked += len(req.Results)
	if after := s.asked / 20_000; after > before {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s.heap[after*20] = m.HeapAlloc
	}
	return s.fake.Enrich(ctx, req)
}

// A file of a hundred thousand rows and a hundred megabytes takes no more memory at its end than at its beginning.
func TestEnrichInConstantMemory(t *testing.T) { //nolint:paralleltest // weighs the whole process
	const rows = 100_000
	s := &scale{heap: map[int]uint64{}}
	var stderr bytes.Buffer
	code := Run(t.Context(), Config{
		OpenEnricher: func(context.Context, EnricherOptions) (enrich.Enricher, func() error, error) {
			return s, func() error { return nil }, nil
		},
		Stderr: &stderr, Stdin: &sheet{n: rows}, Stdout: io.Discard,
	}, []string{"enrich", "--output", "jsonl", "--format", "csv", "-"})
	check.Require(t, code == 0 && s.asked == rows, "exits with %d after %d places: %s", code, s.asked, &stderr)
	first, last := s.heap[20], s.heap[100]
	check.That(t, first != 0 && last <= first+16<<20, "live bytes by thousands of rows: %v", s.heap)
	t.Logf("live bytes by thousands of rows: %v", s.heap)
}

// TestResumptionCutsOffAnUnfinishedLine: a run that was killed may have written half a row.
func TestResumptionCutsOffAnUnfinishedLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "results.jsonl")
	check.OK(t, os.WriteFile(path, []byte("{\"placeId\":\"p1\"}\n{\"placeId\":\"p"), 0o600))
	r := check.Must(openResumption(path))(t)
	check.OK(t, check.Err(r.file.WriteString("next\n")))
	check.OK(t, r.file.Close())
	got := check.Must(os.ReadFile(path))(t)
	check.That(t, string(got) == "{\"placeId\":\"p1\"}\nnext\n" && r.rows == 1, "%d rows, then %q", r.rows, got)
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
		data := check.Must(os.ReadFile(path))(t)
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
		check.That(t, (code == 0) == (after == 0) && strings.Contains(stderr.String(), want) == (after > 0),
			"exits with %d: %q, want %q when it was interrupted", code, &stderr, want)
	}
	got := written()
	for i, line := range got {
		want := fmt.Sprintf(`"placeId":"p%d"`, i+1)
		check.Require(t, strings.Contains(line, want), "line %d is %s, want %s", i+1, line, want)
	}
	check.Same(t, "rows", len(got), rows)
}
