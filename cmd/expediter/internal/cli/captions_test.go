package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// TestCaptionsSayWhatWasCut hands the command more cues than it takes.
func TestCaptionsSayWhatWasCut(t *testing.T) {
	t.Parallel()
	file := []byte("WEBVTT\n\n")
	for n := range caption.DefaultMaxCues + 1 { // equal ones would be one
		file = fmt.Appendf(file, "00:00.000 --> 00:01.000\n%d\n\n", n)
	}
	cfg, stdout, stderr := captionsConfig(string(file))
	check.Equal(t, Run(t.Context(), cfg, []string{"captions", "-o", "jsonl", "-"}), ExitFailure, "exits with")
	check.Equal(t, stderr.String(), "error: standard input: not all of it was read: cut at line 750003 by MaxCues (250000)\n")
	check.Equal(t, strings.Count(stdout.String(), "\n"), caption.DefaultMaxCues, "segments")
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
		check.ErrorIs(t, err, nil)
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
		check.Equal(t, stdout.String(), test.stdout, test.flag)
		check.That(t, strings.Contains(stderr.String(), test.stderr) && (test.stderr == "") == (stderr.Len() == 0), "%s: %q", test.flag, stderr)
		check.Equal(t, code == ExitUsage, test.stdout == "", test.flag, "is a mistake")
	}
}

// TestCaptionsOutputFails has a standard output that is gone.
func TestCaptionsOutputFails(t *testing.T) {
	t.Parallel()
	cfg, _, stderr := captionsConfig("WEBVTT\n\n00:00.000 --> 00:01.000\na\n")
	cfg.Stdout = closedPipe{}
	check.Equal(t, Run(t.Context(), cfg, []string{"captions", "-"}), ExitFailure, "exits with")
	check.Equal(t, stderr.String(), "error: writing the output: closed pipe\n")
}

func captionsConfig(stdin string) (cfg Config, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	none := func(string) string { return "" }
	return Config{Getenv: none, Stderr: stderr, Stdin: strings.NewReader(stdin), Stdout: stdout}, stdout, stderr
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
	files.Handle("/", http.FileServerFS(pipeline.Videos()))
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

func TestRecipeCard(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{
		Title: "Leek tart", Description: "A tart for cold days.", Servings: "4-6", Unverified: []string{"servings"},
		Times: recipe.Times{PrepSec: 900, CookSec: 5430, TotalSec: 7200},
		Ingredients: []recipe.Ingredient{
			{Qty: "1 1/2", Unit: "cup", Item: "flour", Note: "sifted"},
			{Qty: "2-3", Item: "leeks"},
			{Qty: "3", Unit: "leaf", Item: "sage", Section: "For the top:", Unverified: []string{"qty"}},
			{Item: "pepper", Section: "For the top:"},
		},
		Steps: []recipe.Step{
			{Index: 1, Text: "Wash the leeks.", Timestamp: new(65.4)},
			{Index: 2, Text: "Bake.", Timestamp: new(3725.0), Unverified: []string{"timestamp_sec"}},
			{Index: 3, Text: "Serve."},
		},
		Details: recipe.Details{
			Authors: []string{"Ann", "Bo"}, Keywords: []string{"leek", "tart"}, Categories: []string{"Dinner"}, Cuisines: []string{"French"},
			Image: "https://example.com/tart.jpg", Notes: []string{"Keeps for two days."},
			Nutrition: map[string]string{"saturatedFatContent": "4 g", "calories": "270 kcal", "servingSize": "1 slice"},
		},
		Warnings: []recipe.Warning{{Code: extract.WarnUnverified, Text: "Fields are marked."}, {Code: "cut", Text: "It was long."}},
	}
	const want = `Leek tart
Serves 4-6, prep 15m, cook 1h30m30s, total 2h0m
https://example.com/tart

A tart for cold days.

Ingredients
  1 1/2 cup flour, sifted
  2-3 leeks
  For the top:
  3 leaf sage (?)
  pepper

Steps
  1. [1m5s] Wash the leeks.
  2. [1h2m5s] Bake. (?)
  3. Serve.

By: Ann, Bo
Category: Dinner
Cuisine: French
Keywords: leek, tart
Nutrition: calories 270 kcal, saturated fat 4 g, serving size 1 slice
Photo: https://example.com/tart.jpg
Note: Keeps for two days.

! It was long.
! What is marked (?) was not found in the source.
`
	check.Equal(t, newRecipeCard(&r, "https://example.com/tart"), want)
}

// Texts of strangers cannot move the cursor.
func TestRecipeCardOfStrangers(t *testing.T) {
	t.Parallel()
	evil := "麺 שלום \x1b[2Jevil\r \u202e"
	out := newRecipeCard(&recipe.Recipe{
		Title: evil, Description: "Buy\x1b this", Servings: "1 loaf\a",
		Ingredients: []recipe.Ingredient{
			{Qty: "2", Unit: "Tasse\x1b", Item: evil, Raw: "1 cup water", Section: "\x1b[31m"}, {Item: "tea", Raw: "1 bag tea"},
		},
		Steps: []recipe.Step{{Text: evil}}, Warnings: []recipe.Warning{{Code: "x\x07"}},
	}, "a\x00b")
	check.That(t, !strings.ContainsAny(out, "\x1b\x07\x00\r\u202e"), "%q", out)
	check.Contains(t, out, "Makes 1 loaf", "2 Tasse\ufffd ")
}
