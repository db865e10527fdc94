package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/enrich"
	"github.com/expediter-io/expediter/cmd/expediter/internal/input"
	"github.com/expediter-io/expediter/cmd/expediter/internal/output"
)

// enrichFlags are the flags of the enrich command.
type enrichFlags struct {
	batch       int
	catalog     string
	city        string
	concurrency int
	format      string
	full        bool
	keyFile     string
	output      string
	providers   []string
	resume      string
	timeout     time.Duration
	url         string
	wait        bool
}

func newEnrich(g *globals) *cobra.Command {
	f := enrichFlags{format: string(input.FormatAuto), output: string(output.FormatTable)}
	cmd := &cobra.Command{
		Use:  "enrich FILE...",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.url == "" && !cmd.Flags().Changed("wait") {
				f.wait = true // an embedded pipeline ends with the command, and its pending look-ups with it
			}
			return g.enrich(cmd.Context(), f, args)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.batch, "batch", 20, "places in one request")
	flags.StringVar(&f.catalog, "catalog", "", "venue file to match against, in an embedded pipeline (default the sample's)")
	flags.StringVar(&f.city, "city", "", "city of places that name none")
	flags.IntVar(&f.concurrency, "concurrency", 4, "requests at a time")
	g.choice(cmd, &f.format, "format", "", "form of the input: auto, csv, json or jsonl", input.Formats()...)
	flags.BoolVar(&f.full, "full", false, "add the whole enriched place to each result (json, jsonl)")
	flags.StringVar(&f.keyFile, "key-file", "", "file with the key for --url (default $EXPEDITER_KEY)")
	g.choice(cmd, &f.output, "output", "o", "form of the results: table, json, jsonl or csv", output.Formats()...)
	flags.StringSliceVar(&f.providers, "provider", nil, "providers to ask (default all)")
	flags.StringVar(&f.resume, "resume", "", "file to write the results to, after those that an earlier run wrote there (needs -o jsonl)")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "longest time to wait for the places of one request")
	flags.StringVar(&f.url, "url", "", "running enricher to ask, instead of an embedded one")
	flags.BoolVar(&f.wait, "wait", false, "wait until no place is pending (default true without --url)")
	return cmd
}

// check returns every mistake in the flags that can be found before a file is opened.
func (f enrichFlags) check(paths []string) error {
	var errs []error
	if u, err := url.Parse(f.url); f.url != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("--url %q: want a URL such as http://localhost:8080", f.url))
	}
	stdin := 0
	for _, path := range paths {
		if path == input.Stdin {
			stdin++
		}
	}
	return usage(append(errs, f.run(nil).Validate(),
		refuse(f.catalog != "" && f.url != "", "--catalog and --url exclude each other: a running enricher has its own providers"),
		refuse(f.resume != "" && f.output != string(output.FormatJSONLines),
			"--resume: want --output jsonl, of which each line is complete by itself"),
		refuse(stdin > 1, `"-" is given more than once: the standard input can be read only once`))...)
}

func (f enrichFlags) run(show func(string, int64)) enrich.Config {
	return enrich.Config{
		BatchSize: f.batch, Concurrency: f.concurrency, Full: f.full, Progress: show,
		Providers: f.providers, Timeout: f.timeout, Wait: f.wait,
	}
}

// enrich runs the command, once its flags are read.
func (g *globals) enrich(ctx context.Context, f enrichFlags, paths []string) (err error) {
	if err := g.usage(f.check(paths)); err != nil {
		return err
	}
	if err := exist(append(paths, f.catalog)); err != nil {
		return err
	}
	reader := input.NewReader(input.Config{City: f.city, Format: input.Format(f.format), Stdin: g.config.Stdin})
	stdout := g.config.stdout()
	earlier := &resumption{}
	if f.resume != "" {
		if earlier, err = openResumption(f.resume); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, earlier.file.Close()) }()
		stdout.Writer = earlier.file
	}
	out := output.New(stdout, output.Format(f.output), stdout.Color)
	key, err := g.callerKey(f.keyFile)
	if err != nil {
		return err
	}
	enricher, stop, err := g.config.OpenEnricher(ctx, EnricherOptions{
		Catalog: f.catalog, Key: key, Logger: g.logger, ServerLogger: g.serverLogger(), URL: f.url,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	bar := g.newBar(input.Size(paths...), true)
	summary, err := enrich.Run(ctx, enricher, earlier.skip(reader.Files(ctx, paths...)), out, f.run(bar.Set))
	bar.Close()
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = fmt.Errorf("interrupted after %d rows", earlier.rows+summary.Rows())
	}
	err = errors.Join(err, out.Close()) // the rows written so far stay readable after an error
	return errors.Join(err, problems(g.config.Stderr, reader.Report()))
}

// exist returns an error for files that do not exist, before any work begins.
func exist(paths []string) error {
	var errs []error
	for _, path := range paths {
		if path == "" || path == input.Stdin {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// resumption is a file with the results of an earlier run that is to be continued. The zero value is for a new run.
type resumption struct {
	file  *os.File
	lines *bufio.Reader // the earlier rows
	rows  int           // the number of earlier rows
}

// openResumption opens the file of an earlier run, or creates it, and cuts off an unfinished last line.
func openResumption(path string) (*resumption, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // results are no secret, and the path is the caller's
	if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	r := &resumption{file: file}
	size := int64(0)
	for lines := bufio.NewReader(file); err == nil; {
		var n int
		if n, err = skipLine(lines); err == nil {
			size += int64(n)
			r.rows++
		}
	}
	if errors.Is(err, io.EOF) {
		err = file.Truncate(size)
	}
	if err == nil {
		_, err = file.Seek(size, io.SeekStart)
	}
	r.lines = bufio.NewReader(io.NewSectionReader(file, 0, size))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--resume %s: %w", path, err), file.Close())
	}
	return r, nil
}

// skipLine reads a whole line of any length, and returns its length in bytes.
func skipLine(lines *bufio.Reader) (n int, err error) {
	for {
		part, err := lines.ReadSlice('\n')
		n += len(part)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return n, err //nolint:wrapcheck // the caller names the file
		}
	}
}

// skip leaves out the places that have a row. The rows must belong to the first places, in their order.
func (r *resumption) skip(places iter.Seq2[input.Place, error]) iter.Seq2[input.Place, error] {
	return func(yield func(input.Place, error) bool) {
		n := 0
		for place, err := range places {
			if n < r.rows && err == nil {
				n++
				if err = r.check(n, place); err == nil {
					continue
				}
			}
			if !yield(place, err) {
				return
			}
		}
	}
}

// check returns an error when the next row does not belong to a place.
func (r *resumption) check(n int, place input.Place) error {
	line, err := r.lines.ReadBytes('\n')
	var row struct {
		PlaceID string `json:"placeId"`
	}
	if err == nil {
		err = json.Unmarshal(bytes.TrimSpace(line), &row)
	}
	if err != nil {
		return fmt.Errorf("--resume: line %d of %s is no result: %w", n, r.file.Name(), err)
	}
	if row.PlaceID != place.Restaurant.PlaceID {
		return fmt.Errorf("--resume: line %d of %s is about place %q, and %s about %q: it has the results of other input",
			n, r.file.Name(), row.PlaceID, place.Position, place.Restaurant.PlaceID)
	}
	return nil
}
