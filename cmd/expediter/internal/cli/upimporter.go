package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/source"
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
