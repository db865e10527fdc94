package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/cmd/expediter/internal/enrich"
	"github.com/expediter-io/expediter/pkg/contracts"
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
	if code != 0 || s.asked != rows {
		t.Fatalf("exits with %d after %d places: %s", code, s.asked, &stderr)
	}
	first, last := s.heap[20], s.heap[100]
	if first == 0 || last > first+16<<20 {
		t.Errorf("live bytes by thousands of rows: %v", s.heap)
	}
	t.Logf("live bytes by thousands of rows: %v", s.heap)
}
