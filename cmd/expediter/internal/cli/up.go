package cli

import (
	"cmp"
	"context"
	_ "embed" // the greeting
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"text/template"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/demo"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/cmd/expediter/internal/sample"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/notifier"
)

// upFlags are the flags of the up command.
type upFlags struct {
	catalog      string
	cluster      int
	consolePort  int
	dir          string
	httpPort     int
	importerPort int
	natsPort     int
	notifierPort int
	rules        string
	templates    string
}

func newUp(g *globals) *cobra.Command {
	var f upFlags
	cmd := action("up", func(ctx context.Context, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		return g.up(ctx, f)
	})
	flags := cmd.Flags()
	flags.StringVar(&f.catalog, "catalog", "", "venue file to match against (default the sample's)")
	flags.IntVar(&f.cluster, "cluster", 1, "NATS servers: 1, or 3 to 9 for a cluster")
	flags.IntVar(&f.consolePort, "console-port", 8000, "port of the page to try everything on, and of the console, 0 for a free one")
	flags.StringVar(&f.dir, "dir", "", "directory that keeps the data over a restart (default none)")
	flags.IntVar(&f.httpPort, "http-port", 8080, "port of the first enricher, 0 for a free one; the second takes a free one")
	flags.IntVar(&f.importerPort, "importer-port", 8005, "port of the importer, 0 for a free one")
	flags.IntVar(&f.natsPort, "nats-port", 4222, "port of the NATS server, 0 for a free one; those of a cluster take free ones")
	flags.IntVar(&f.notifierPort, "notifier-port", 8006, "port of the notifier, 0 for a free one")
	flags.StringVar(&f.rules, "rules", "", "file of the notification rules (default $NOTIFIER_RULES, or the sample's)")
	flags.StringVar(&f.templates, "templates", "", "folder of the texts of email, SMS and Web Push (default $NOTIFIER_TEMPLATES)")
	return cmd
}

// maxPort is the greatest TCP port.
const maxPort = 1<<16 - 1

// check returns every mistake in the flags that can be found before anything is started.
func (f upFlags) check() error {
	errs := []error{refuse(f.cluster != 1 && (f.cluster < 3 || f.cluster > 9), "--cluster %d: want 1, or 3 to 9", f.cluster)}
	taken := map[int]string{}
	for _, port := range f.ports() {
		switch before := taken[port.number]; {
		case port.number < 0 || port.number > maxPort:
			errs = append(errs, fmt.Errorf("%s %d: want 0 to %d", port.flag, port.number, maxPort))
		case port.number > 0 && before != "":
			errs = append(errs, fmt.Errorf("%s %d: that is the port of %s", port.flag, port.number, before))
		}
		taken[port.number] = port.flag
	}
	return usage(errs...)
}

// port is a port, with the flag that names it.
type port struct {
	flag   string
	number int
}

func (f upFlags) ports() []port {
	return []port{
		{"--console-port", f.consolePort},
		{"--http-port", f.httpPort},
		{"--importer-port", f.importerPort},
		{"--nats-port", f.natsPort},
		{"--notifier-port", f.notifierPort},
	}
}

func (g *globals) up(ctx context.Context, f upFlags) (err error) {
	venues, err := openCatalog(f.catalog)
	if err != nil {
		return err
	}
	importing, err := g.importerSettings()
	if err != nil {
		return err
	}
	notifying, err := f.notifierSettings()
	if err != nil {
		return err
	}
	if f.cluster > 1 {
		//nolint:errcheck // only to pass the time
		fmt.Fprintf(g.config.Stderr, "Starting %d NATS servers, which takes some seconds.\n", f.cluster)
	}
	p, err := startPipeline(ctx, pipeline.Config{
		Dir: f.dir, Enrichers: []string{"127.0.0.1:" + strconv.Itoa(f.httpPort), "127.0.0.1:0"},
		Importers: []string{"127.0.0.1:" + strconv.Itoa(f.importerPort)}, Logger: g.logger,
		NATSPort: f.natsPort, Nodes: f.cluster, Notifier: notifying, Notifiers: []string{"127.0.0.1:" + strconv.Itoa(f.notifierPort)},
		Provider: venues, ServerLogger: g.serverLogger(),
	}, &importing)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil //nolint:nilerr // interrupted while it started
	case err != nil:
		return f.explain(ctx, err)
	}
	pages, err := openSite(ctx, "127.0.0.1:"+strconv.Itoa(f.consolePort), p, g.logger)
	if err != nil {
		stopErr := p.Stop()
		return errors.Join(f.explain(ctx, err), stopErr)
	}
	if err := f.greet(g.config.Stdout, pages.URL(), p, &importing); err != nil {
		return errors.Join(err, pages.stop(), p.Stop())
	}
	<-ctx.Done()
	fmt.Fprintln(g.config.Stderr, "Stopping. Interrupt again to end at once.") //nolint:errcheck // as above
	return errors.Join(pages.stop(), p.Stop())
}

// explain adds a remedy to the most common errors of a start, in terms of the flags.
func (f upFlags) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, natsrun.ErrPortInUse), errors.Is(err, syscall.EADDRINUSE):
		taken, free := f.taken(ctx)
		if taken == "" { // it has been freed since
			return err
		}
		return fmt.Errorf("taken: %s; is another one up? Stop it, or take free ports with %s (%w)", taken, free, err)
	case errors.Is(err, natsrun.ErrDirInUse):
		return fmt.Errorf("--dir %s is used by another one that is up; stop it, or take another directory (%w)", f.dir, err)
	case errors.Is(err, natsrun.ErrDirUnusable):
		return fmt.Errorf("--dir %s cannot be used (%w)", f.dir, err)
	}
	return err
}

// taken returns the flags of all ports on which nobody can listen, and flags to take instead. The pipeline has stopped: its ports are free.
func (f upFlags) taken(ctx context.Context) (flags, instead string) {
	var taken, free []string
	for _, p := range f.ports() {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(p.number))
		if err != nil {
			taken, free = append(taken, fmt.Sprint(p.flag, " ", p.number)), append(free, p.flag+" 0")
			continue
		}
		_ = listener.Close() // nobody has connected
	}
	return strings.Join(taken, ", "), strings.Join(free, " ")
}

// openCatalog opens a venue file, or the sample's without a path.
func openCatalog(path string) (provider.Provider, error) {
	if path == "" {
		known, err := catalog.Read(sample.Catalog(), contracts.ProviderWolt)
		return distant{known}, err
	}
	return catalog.Open(path, contracts.ProviderWolt)
}

//go:embed up.txt
var upText string

var greeting = template.Must(template.New("up").Parse(upText)) //nolint:gochecknoglobals // a constant

// greet writes the addresses of all services, and command lines to paste.
func (f upFlags) greet(out io.Writer, site string, p *pipeline.Pipeline, importing *importerSettings) error {
	cluster := p.NATSURL()
	server, _, _ := strings.Cut(cluster, ",")
	kept := "nothing is kept when it stops"
	if f.dir != "" {
		kept = "kept in " + f.dir
	}
	replicas := "one replica"
	if f.cluster > 1 {
		replicas = fmt.Sprintf("%d replicas", min(f.cluster, pipeline.MaxReplicas))
	}
	err := greeting.Execute(out, map[string]string{
		"Console": consolePath, "Emit": f.tryEmit(server), "Enricher": p.Enrichers[0].URL(), "Import": tryImport(p.Importers[0].URL()),
		"Importer": p.Importers[0].URL(), "Kept": kept, "Missing": strings.Join(importing.missing, "; "),
		"NATS": strings.ReplaceAll(cluster, ",", "  "), "Notifier": p.Notifiers[0].URL(), "Replicas": replicas,
		"Second": p.Enrichers[1].URL(), "Server": server, "Site": site,
	})
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// importerSettings are the settings of the importer of `up`.
type importerSettings struct {
	importer.Config

	// missing describes the programs that are not installed, and the sources that do not work without them.
	missing []string

	// optional reports whether YouTube is turned on only because yt-dlp is installed.
	optional bool
}

// importerSettings reads the environment, and checks which programs are installed. It leaves out sources that need a
// missing program, unless the environment asks for them.
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

// startPipeline starts the pipeline. If yt-dlp is installed and does not work, it leaves out YouTube, unless the
// environment asks for YouTube.
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

// tryImport returns a line to paste that imports a recipe.
func tryImport(url string) string {
	flag := ""
	if url != defaultImporter {
		flag = " --url " + url
	}
	const said = "Whisk 3 eggs with a pinch of salt. Melt 1 tablespoon of butter in a hot pan. Pour in the eggs and stir for 2 minutes."
	return fmt.Sprintf("echo '%s' | expediter import --follow%s -", said, flag)
}

// notifierSettings reads the environment, and checks that the files that the flags name exist.
func (f upFlags) notifierSettings() (notifier.Config, error) {
	cfg, err := notifier.FromEnvironment()
	if err != nil {
		return cfg, &UsageError{Err: err}
	}
	cfg.Rules, cfg.Templates = cmp.Or(f.rules, cfg.Rules), cmp.Or(f.templates, cfg.Templates)
	return cfg, exist([]string{cfg.Rules, cfg.Templates})
}

// tryEmit returns command lines to paste that publish an event, which fits the rules of the sample.
func (f upFlags) tryEmit(server string) string {
	flag := ""
	if server != nats.DefaultURL {
		flag = " --server " + server
	}
	return fmt.Sprintf("  echo '%s' | expediter emit --wait%s -\n  expediter inbox%s carla\n", sample.Event, flag, flag)
}

// errBroken is returned when an invariant did not hold in the demo.
var errBroken = errors.New("a promise was broken")

func newDemo(g *globals) *cobra.Command {
	return g.listing("demo", func(ctx context.Context, _ []string, format string) error {
		report, err := demo.Run(ctx, demo.Config{
			Logger: g.logger, Out: g.config.Stdout, TempDir: g.config.Getenv("IMPORTER_TEMP_DIR"),
		})
		return g.conclude(report, err, format)
	}, textFormats...)
}

// conclude writes the end of the account, also of a demo that did not run to its end.
func (g *globals) conclude(report demo.Report, err error, format string) error {
	switch {
	case err != nil:
		report.OK, report.Error = false, err.Error()
	case !report.OK:
		err = fmt.Errorf("%w: %s", errBroken, strings.Join(report.Broken, "; "))
	}
	if format == "json" {
		err = errors.Join(err, g.writeLine(report))
	}
	return err
}
