package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/expediter-io/expediter/cmd/expediter/internal/enrich"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/cmd/expediter/internal/sample"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/caption"
)

// TestCaptionsSayWhatWasCut hands the command more cues than it takes.
func TestCaptionsSayWhatWasCut(t *testing.T) {
	t.Parallel()
	const cue = "00:00.000 --> 00:01.000\na\n\n"
	cfg, stdout, stderr := captionsConfig("WEBVTT\n\n" + strings.Repeat(cue, caption.DefaultMaxCues+1))
	check.Same(t, "exits with", Run(t.Context(), cfg, []string{"captions", "--format", "json", "-"}), ExitFailure)
	got, want := stderr.String(), "error: standard input: not all of it was read: cut at line 750003 by MaxCues (250000)\n"
	check.That(t, got == want, "stderr %q, want %q", got, want)
	var out struct {
		Cues      []struct{}        `json:"cues"`
		Cuts      []caption.Cut     `json:"cuts"`
		Segments  []caption.Segment `json:"segments"`
		Truncated bool              `json:"truncated"`
	}
	check.OK(t, json.Unmarshal(stdout.Bytes(), &out))
	if !out.Truncated || len(out.Cuts) != 1 || len(out.Cues) != caption.DefaultMaxCues || len(out.Segments) != caption.DefaultMaxCues {
		t.Errorf("truncated %t, cuts %v, %d cues, %d segments", out.Truncated, out.Cuts, len(out.Cues), len(out.Segments))
	}
}

// TestCaptionsEndWithAnInterrupt: also of a file that would never end.
func TestCaptionsEndWithAnInterrupt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.vtt")
	check.OK(t, os.WriteFile(path, []byte("WEBVTT\n\n00:00.000 --> 00:01.000\na\n"), 0o600))
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, source := range []string{"-", path} {
		cfg, stdout, stderr := captionsConfig("WEBVTT\n\n")
		check.That(t, Run(ctx, cfg, []string{"captions", source}) != ExitOK && stdout.Len() == 0 && stderr.Len() > 0,
			"%s: %q, %q", source, stdout, stderr)
	}
}

// TestFollowedImportIsNotAskedForFirst: the events of a job suffice, which are asked for again while the importer is away.
func TestFollowedImportIsNotAskedForFirst(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/imports/j1/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, err := io.WriteString(w, "id: 1\nevent: status\ndata: {\"job_id\":\"j1\",\"status\":\"FAILED\",\"code\":\"network\",\"error\":\"cut off\"}\n\n")
		check.Is(t, err, nil)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	cfg, _, stderr := captionsConfig("")
	code := Run(t.Context(), cfg, []string{"import", "status", "j1", "--follow", "--url", server.URL})
	check.That(t, code == ExitFailure && strings.Contains(stderr.String(), "cut off"), "exits with %d: %s", code, stderr)
}

// TestCaptionsEncodings reads text that is not UTF-8, and reports guesses and lost characters.
func TestCaptionsEncodings(t *testing.T) {
	t.Parallel()
	const koi = "\xee\xc1\xd2\xc5\xd6\xd8\xd4\xc5 \xcc\xd5\xcb \xc9 \xcd\xcf\xd2\xcb\xcf\xd7\xd8, \xcf\xc2\xd6\xc1\xd2\xd8\xd4\xc5 \xc9\xc8"
	const text = "Нарежьте лук и морковь, обжарьте их\n"
	for _, test := range []struct{ flag, stdin, stdout, stderr string }{
		{"", "Add the cr\xe8me to the soup", "Add the crème to the soup\n", "standard input: it is not UTF-8, and is read as windows-1252 (name another with --encoding)\n"},
		{"--encoding=koi8-r", koi, text, ""},
		{"", text, text, ""},
		{"--encoding=utf-8", "Add the cr\xe8me to the soup", "Add the cr\ufffdme to the soup\n", "standard input: 1 characters could not be read (name the encoding with --encoding)\n"},
		{"--encoding=klingon", text, "", "klingon"},
	} {
		cfg, stdout, stderr := captionsConfig(test.stdin)
		code := Run(t.Context(), cfg, append([]string{"captions", "-"}, strings.Fields(test.flag)...))
		if wrong := test.stdout == ""; stdout.String() != test.stdout || !strings.Contains(stderr.String(), test.stderr) || (test.stderr == "") != (stderr.Len() == 0) ||
			(code == ExitUsage) != wrong {
			t.Errorf("%s: exits with %d, %q, stderr %q", test.flag, code, stdout, stderr)
		}
	}
}

// TestCaptionsOutputFails has a standard output that is gone.
func TestCaptionsOutputFails(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"segments", "text", "json"} {
		cfg, _, stderr := captionsConfig("WEBVTT\n\n00:00.000 --> 00:01.000\na\n")
		cfg.Stdout = closedPipe{}
		check.Same(t, format+": exits with", Run(t.Context(), cfg, []string{"captions", "--format", format, "-"}), ExitFailure)
		got, want := stderr.String(), "error: writing the output: closed pipe\n"
		check.That(t, got == want, "%s: stderr %q, want %q", format, got, want)
	}
}

func captionsConfig(stdin string) (cfg Config, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return Config{
		Getenv: func(string) string { return "" }, Stderr: stderr, Stdin: strings.NewReader(stdin), Stdout: stdout,
	}, stdout, stderr
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, errors.New("closed pipe") }

// nobody is a provider that finds nothing.
type nobody struct{}

func (nobody) Name() string                                                  { return "wolt" }
func (nobody) Search(context.Context, match.Place) ([]provider.Venue, error) { return nil, nil }

// importing is `importing`: it starts an importer and a site with the sample's videos, until the script ends, and sets
// IMPORTER and SITE to where they are.
func importing(ts *testscript.TestScript, _ bool, _ []string) {
	files := http.NewServeMux()
	files.Handle("/", http.FileServerFS(sample.Videos()))
	files.HandleFunc("/stall.vtt", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	site := httptest.NewServer(files)
	ts.Defer(site.Close)
	temp := ts.MkAbs("importer")
	ts.Check(os.Mkdir(temp, 0o700))
	p, err := pipeline.Start(context.Background(), pipeline.Config{
		Importer:  importer.Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TempDir: temp},
		Importers: []string{"127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler), NATSPort: -1, Provider: nobody{},
	})
	ts.Check(err)
	ts.Defer(func() { ts.Check(p.Stop()) })
	ts.Setenv("IMPORTER", p.Importers[0].URL())
	ts.Setenv("SITE", site.URL)
}

// saved is `saved VARIABLE`: it sets a variable to the text of the standard output.
func saved(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile("stdout")
	ts.Setenv(args[0], text[:max(len(text)-1, 0)])
}

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

// scale weighs the live memory while places are asked for.
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
