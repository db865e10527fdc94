// Package input reads the places of a run from files of any size, in CSV, JSON or JSON Lines.
//
// It holds one record at a time, so that memory does not grow with the file; only the ids of the last places are
// remembered, up to a bound, to find duplicates. A record that cannot be used is described with its file, line and
// fields, and does not stop the others.
package input

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Stdin is the path that stands for the standard input.
const Stdin = "-"

// Reader reads files. A Reader is for one goroutine.
type Reader struct {
	config Config
	report Report
	seen   *seen
}

// Report counts the records of the files read so far.
type Report struct {
	// Bad is how many records could not be used.
	Bad int

	// Duplicates is how many records repeated an earlier one word for word. They are not yielded again.
	Duplicates int

	// Places is how many places were yielded.
	Places int

	// Problems describes the first Config.MaxProblems bad records, in the order of the input.
	Problems []*RowError

	// Rows is how many records were met: Bad + Duplicates + Places.
	Rows int
}

// NewReader returns a reader, or every mistake in the configuration.
func NewReader(cfg Config) (*Reader, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Reader{config: cfg, seen: newSeen(cfg.MaxIDs)}, nil
}

// Report returns the counts so far. Call it after the loop over Files has ended.
func (r *Reader) Report() Report { return r.report }

// Files yields the places of the files in their order. The path "-" is the standard input.
//
// An error is the last thing that it yields: the file cannot be opened or read, breaks the rules of its format
// (ErrSyntax, ErrHeader, ErrRecordTooLarge), ctx has ended, or, in strict mode, the first *RowError. Records that are
// bad by themselves are left out and counted in the Report.
func (r *Reader) Files(ctx context.Context, paths ...string) iter.Seq2[Place, error] {
	return func(yield func(Place, error) bool) {
		out := &sink{config: r.config, report: &r.report, seen: r.seen, yield: yield}
		var base int64
		for _, path := range paths {
			size, err := r.file(ctx, path, base, out)
			if errors.Is(err, errStopped) {
				return
			}
			if err != nil {
				yield(Place{}, err)
				return
			}
			base += size
		}
	}
}

func (r *Reader) file(ctx context.Context, path string, base int64, out *sink) (int64, error) {
	if path == Stdin {
		return r.decode(newSource("stdin", decoded(interruptible(ctx, r.config.Stdin)), base), "", out)
	}
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return 0, fmt.Errorf("input: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	return r.decode(newSource(path, decoded(file), base), path, out)
}

// decoded drops a byte order mark and turns UTF-16 that carries one into UTF-8.
func decoded(r io.Reader) io.Reader {
	return transform.NewReader(r, unicode.BOMOverride(encoding.Nop.NewDecoder()))
}

func (r *Reader) decode(src *source, path string, out *sink) (int64, error) {
	head, err := src.peek()
	if err != nil {
		return 0, err
	}
	format := r.config.Format
	if format == FormatAuto {
		format = detect(path, head)
	}
	switch format {
	case FormatJSON:
		err = readJSON(src, r.config.MaxRecordBytes, out)
	case FormatJSONLines:
		err = readJSONLines(src, r.config.MaxRecordBytes, out)
	default:
		err = readCSV(src, head, r.config.MaxRecordBytes, out)
	}
	return src.read, err
}

// Size returns how many bytes the files hold together, or 0 when that cannot be known, as for the standard input.
func Size(paths ...string) int64 {
	var total int64
	for _, path := range paths {
		info, err := os.Stat(path)
		if path == Stdin || err != nil || !info.Mode().IsRegular() {
			return 0
		}
		total += info.Size()
	}
	return total
}

// Config says how files are read.
type Config struct {
	// City is the city of places that name none. Defaults to none.
	City string

	// Format is the form of every file. Defaults to FormatAuto.
	Format Format

	// MaxIDs is how many of the last place ids are remembered to find duplicates; an id costs about 70 bytes. Defaults
	// to 1,000,000.
	MaxIDs int

	// MaxProblems is how many problems a Report describes; the others are only counted. Defaults to 100.
	MaxProblems int

	// MaxRecordBytes is the size of the largest record, which bounds the memory that a broken file can take. Defaults
	// to 256 KiB, a quarter of contracts.MaxBody.
	MaxRecordBytes int

	// Stdin is read for the path "-". Defaults to os.Stdin.
	Stdin io.Reader

	// Strict ends the reading at the first problem. Defaults to false: problems are counted and reading goes on.
	Strict bool
}

func (c Config) withDefaults() Config {
	c.Format = cmp.Or(c.Format, FormatAuto)
	c.MaxIDs = cmp.Or(c.MaxIDs, 1_000_000)
	c.MaxProblems = cmp.Or(c.MaxProblems, 100)
	c.MaxRecordBytes = cmp.Or(c.MaxRecordBytes, contracts.MaxBody/4)
	if c.Stdin == nil {
		c.Stdin = os.Stdin
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if _, err := ParseFormat(string(c.Format)); err != nil {
		errs = append(errs, err)
	}
	if c.MaxIDs < 2 {
		errs = append(errs, fmt.Errorf("input: MaxIDs is %d: want 2 or more", c.MaxIDs))
	}
	if c.MaxProblems < 0 {
		errs = append(errs, fmt.Errorf("input: MaxProblems is %d: want 0 or more", c.MaxProblems))
	}
	if c.MaxRecordBytes < 64 {
		errs = append(errs, fmt.Errorf("input: MaxRecordBytes is %d: want 64 or more", c.MaxRecordBytes))
	}
	return errors.Join(errs...)
}
