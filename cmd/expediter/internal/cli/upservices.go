package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/cmd/expediter/internal/sample"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/notifier"
)

// importerSettings are the settings of the importer of `up`.
type importerSettings struct {
	importer.Config

	// missing names in words the programs that are not installed, and the sources that do not work without them.
	missing []string

	// optional reports whether YouTube is on only because yt-dlp is installed.
	optional bool
}

// importerSettings reads the environment, and looks which programs are installed. Sources that need a missing program
// are left out, unless the environment asks for them.
func (g *globals) importerSettings() (importerSettings, error) {
	cfg, err := importer.FromEnvironment()
	if err != nil {
		return importerSettings{}, &UsageError{Err: err}
	}
	s := importerSettings{Config: cfg, optional: g.config.Getenv("IMPORTER_YOUTUBE") == ""}
	if s.optional {
		program := cmp.Or(cfg.YtDlp, "yt-dlp")
		_, err := exec.LookPath(program)
		if s.YouTube = err == nil; !s.YouTube {
			s.missing = append(s.missing, program+", so no videos of YouTube")
		}
	}
	if _, err := exec.LookPath("tesseract"); err != nil && !cfg.OpenAIVision {
		s.missing = append(s.missing, "tesseract, so no photos")
	}
	return s, nil
}

// startPipeline starts everything. If yt-dlp is installed and does not work, YouTube is left out, unless the
// environment asks for it.
func startPipeline(ctx context.Context, cfg pipeline.Config, s *importerSettings) (*pipeline.Pipeline, error) {
	cfg.Importer = s.Config
	p, err := pipeline.Start(ctx, cfg)
	if err == nil || !s.optional || !errors.Is(err, source.ErrYouTube) {
		return p, err
	}
	cfg.Logger.WarnContext(ctx, "videos of YouTube are left out", "error", err)
	s.missing = append(s.missing, "a yt-dlp that works, so no videos of YouTube")
	cfg.Importer.YouTube = false
	return pipeline.Start(ctx, cfg)
}

// notInstalled returns a line about missing programs, "" if none is missing.
func (s *importerSettings) notInstalled() string {
	if len(s.missing) == 0 {
		return ""
	}
	return "               not installed: " + strings.Join(s.missing, "; ") + "\n"
}

// tryImport is a line to paste that imports a recipe.
func tryImport(url string) string {
	flag := ""
	if url != defaultImporter {
		flag = " --url " + url
	}
	const said = "Whisk 3 eggs with a pinch of salt. Melt 1 tablespoon of butter in a hot pan. Pour in the eggs and stir for 2 minutes."
	return fmt.Sprintf("echo '%s' | expediter import --follow%s -", said, flag)
}

// notifierSettings reads the environment, and looks for the files that the flags name before anything is started.
func (f upFlags) notifierSettings() (notifier.Config, error) {
	cfg, err := notifier.FromEnvironment()
	if err != nil {
		return cfg, &UsageError{Err: err}
	}
	cfg.Rules, cfg.Templates = cmp.Or(f.rules, cfg.Rules), cmp.Or(f.templates, cfg.Templates)
	for _, path := range []string{cfg.Rules, cfg.Templates} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			return cfg, err //nolint:wrapcheck // it names the file
		}
	}
	return cfg, nil
}

// tryEmit are command lines to paste that publish an event. The sample's event is for the rules of the sample.
func (f upFlags) tryEmit(server string) string {
	flag := ""
	if server != nats.DefaultURL {
		flag = " --server " + server
	}
	return fmt.Sprintf("  echo '%s' | expediter emit --wait%s -\n  expediter inbox%s carla\n", sample.Event, flag, flag)
}
