package cli

import (
	"cmp"
	"context"
	_ "embed" // the greeting
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/demo"
	"github.com/expediter-io/expediter/cmd/expediter/internal/doctor"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/cmd/expediter/internal/tour"
	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/notifier"
)

type upFlags struct {
	catalog   string
	cluster   int
	dir       string
	rules     string
	templates string

	consolePort, httpPort, importerPort, natsPort, notifierPort uint16
}

func newUp(g *globals) *cobra.Command {
	var f upFlags
	cmd := action("up", func(ctx context.Context, _ []string) error {
		if err := usage(refuse(f.cluster != 1 && (f.cluster < 3 || f.cluster > 9), "--cluster %d: want 1, or 3 to 9", f.cluster)); err != nil {
			return err
		}
		return g.up(ctx, f)
	})
	flags := cmd.Flags()
	flags.StringVar(&f.catalog, "catalog", "", "venue file to match against (default the sample's)")
	flags.IntVar(&f.cluster, "cluster", 1, "NATS servers: 1, or 3 to 9 for a cluster")
	flags.Uint16Var(&f.consolePort, "console-port", 8000, "port of the page to try everything on, and of the console, 0 for a free one")
	flags.StringVar(&f.dir, "dir", "", "directory that keeps the data over a restart (default none)")
	flags.Uint16Var(&f.httpPort, "http-port", 8080, "port of the first enricher, 0 for a free one; the second takes a free one")
	flags.Uint16Var(&f.importerPort, "importer-port", 8005, "port of the importer, 0 for a free one")
	flags.Uint16Var(&f.natsPort, "nats-port", 4222, "port of the NATS server, 0 for a free one; those of a cluster take free ones")
	flags.Uint16Var(&f.notifierPort, "notifier-port", 8006, "port of the notifier, 0 for a free one")
	flags.StringVar(&f.rules, "rules", "", "file of the notification rules (default $NOTIFIER_RULES, or the sample's)")
	flags.StringVar(&f.templates, "templates", "", "folder of the texts of email, SMS and Web Push (default $NOTIFIER_TEMPLATES)")
	return cmd
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
		fmt.Fprintf(g.config.Stderr, "Starting %d NATS servers, which takes some seconds.\n", f.cluster)
	}
	p, err := startPipeline(ctx, pipeline.Config{
		Dir: f.dir, Enrichers: []string{local(f.httpPort), local(0)}, Importers: []string{local(f.importerPort)}, Logger: g.logger,
		NATSPort: int(f.natsPort), Nodes: f.cluster, Notifier: notifying, Notifiers: []string{local(f.notifierPort)},
		Provider: venues, ServerLogger: g.logger.With("component", "nats-server"),
	}, &importing)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil //nolint:nilerr // interrupted while it started
	case err != nil:
		return f.explain(err)
	}
	pages, err := openSite(ctx, local(f.consolePort), p, g.logger)
	if err != nil {
		stopErr := p.Stop()
		return errors.Join(f.explain(err), stopErr)
	}
	if err := f.greet(g.config.Stdout, pages.URL(), p, &importing); err != nil {
		return errors.Join(err, pages.stop(), p.Stop())
	}
	<-ctx.Done()
	fmt.Fprintln(g.config.Stderr, "Stopping. Interrupt again to end at once.")
	return errors.Join(pages.stop(), p.Stop())
}

// local returns the address of a port, for programs of this machine only.
func local(port uint16) string { return fmt.Sprint("127.0.0.1:", port) }

// explain adds a remedy to the most common errors of a start, in terms of the flags.
func (f upFlags) explain(err error) error {
	switch {
	case errors.Is(err, natsrun.ErrPortInUse), errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w; is another one up? Stop it, or take free ports with %s", err,
			"--console-port 0 --http-port 0 --importer-port 0 --nats-port 0 --notifier-port 0")
	case errors.Is(err, natsrun.ErrDirInUse):
		return fmt.Errorf("--dir %s is used by another one that is up; stop it, or take another directory (%w)", f.dir, err)
	case errors.Is(err, natsrun.ErrDirUnusable):
		return fmt.Errorf("--dir %s cannot be used (%w)", f.dir, err)
	}
	return err
}

// openCatalog opens a venue file, or the sample's without a path.
func openCatalog(path string) (provider.Provider, error) {
	if path == "" {
		known, err := catalog.Read(pipeline.Catalog(), contracts.ProviderWolt)
		return distant{known}, err
	}
	return catalog.Open(path, contracts.ProviderWolt)
}

//go:embed up.txt
var upText string

var greeting = template.Must(template.New("up").Parse(upText))

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
	return fmt.Sprintf("  echo '%s' | expediter emit --wait%s -\n  expediter inbox%s carla\n", pipeline.Event, flag, flag)
}

// errBroken is returned when an invariant did not hold in the demo.
var errBroken = errors.New("a promise was broken")

func newDemo(g *globals) *cobra.Command {
	return g.listing("demo", func(ctx context.Context, _ []string, format string) error {
		report, err := demo.Run(ctx, demo.Config{
			Logger: g.logger, Out: g.config.Stdout, TempDir: g.config.Getenv("IMPORTER_TEMP_DIR"),
		})
		return g.conclude(report, err, format)
	})
}

// conclude writes the end of the account, also of a demo that did not run to its end.
func (g *globals) conclude(report demo.Report, err error, format string) error {
	switch {
	case err != nil:
		report.OK, report.Error = false, err.Error()
	case !report.OK:
		err = fmt.Errorf("%w: %s", errBroken, strings.Join(report.Broken, "; "))
	}
	if asJSON(format) {
		err = errors.Join(err, g.writeLine(report))
	}
	return err
}

// consolePath is the path of the console. The page on which to try everything is at the root.
const consolePath = "/console"

type site struct {
	*service.Server

	conn  *nats.Conn
	group *service.Group
}

// openSite serves the page of newcomers and the console at an address. The caller calls stop.
func openSite(ctx context.Context, address string, p *pipeline.Pipeline, logger *slog.Logger) (_ *site, err error) {
	server, err := service.Listen(ctx, "console", address)
	if err != nil {
		return nil, err
	}
	s := &site{Server: server, group: service.NewGroup(ctx)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.conn, err = p.Connect(nats.Name("console")); err != nil {
		return nil, fmt.Errorf("connect the console: %w", err)
	}
	js, err := jetstream.New(s.conn)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	operators, err := console.New(console.Config{
		Accounts: []console.Account{{JetStream: js}}, Audit: audit.New(audit.Config{JetStream: js, Logger: logger, Source: "console"}),
		Conn: s.conn, Doctor: examiner(doctor.Config{Connect: p.Connect, Flags: "--server " + operate.Quote(p.NATSURL()), Server: p.NATSURL()}),
		Logger: logger, Prefix: consolePath,
	})
	if err != nil {
		return nil, err
	}
	router := service.NewRouter(service.RouterConfig{Logger: logger, Name: "tour", Ready: func() map[string]error { return nil }})
	err = tour.Add(router, tour.Config{
		Console: consolePath, Enricher: p.Enrichers[0].URL(), Importer: p.Importers[0].URL(), Notifier: p.Notifiers[0].URL(),
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(consolePath+"/", operators)
	mux.Handle("/", router)
	s.group.Go(operators.Run)
	s.Serve(s.group, service.ServerConfig{Handler: mux, Logger: logger, Name: "console"})
	return s, nil
}

// stop ends the streams to browsers, and then the console.
func (s *site) stop() error {
	err := errors.Join(s.Stop(), s.group.Stop())
	if s.conn != nil {
		s.conn.Close()
	}
	return err
}

// distant is a provider with delayed answers, like a remote one, so that pending places can be seen.
type distant struct{ provider.Provider }

// Search waits for 0.3 to 2.3 seconds, the same for the same place.
func (d distant) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(place.Name))
	retry.Sleep(ctx, 300*time.Millisecond+time.Duration(sum.Sum32()%2000)*time.Millisecond)
	return d.Provider.Search(ctx, place)
}
