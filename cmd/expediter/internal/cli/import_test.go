package cli

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/cmd/expediter/internal/sample"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/importer"
)

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
	p, err := pipeline.Start(context.Background(), pipeline.Config{
		Importer:  importer.Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TempDir: ts.MkAbs("importer")},
		Importers: []string{"127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler), NATSPort: -1, Provider: nobody{},
	})
	ts.Check(err)
	ts.Defer(func() { ts.Check(p.Stop()) })
	ts.Setenv("IMPORTER", p.Importers[0].URL())
	ts.Setenv("SITE", site.URL)
}

// saved is `saved VARIABLE`: it sets a variable to what was written to the standard output.
func saved(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile("stdout")
	ts.Setenv(args[0], text[:max(len(text)-1, 0)])
}
