// Package rig is the common part of the benchmarks that compare with peers: servers as processes of their own, their
// costs, and tables of figures with their spreads.
package rig

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"syscall"
)

// Options are the flags that every benchmark of this kind takes.
type Options struct {
	CPUProfile string
	JSON       bool
	Only       *regexp.Regexp // matches row/contestant
	Rounds     int
	Scale      float64 // the factor of the number of operations of every row

	page *Page // nil for none
}

// Main runs a benchmark, or a server if this process was started for that: it reads the flags (register may add some), measures, and under --json ends with one line of JSON. A result with
// an error is written all the same.
func Main(
	name string, register func(*flag.FlagSet), measure func(ctx context.Context, out io.Writer, o Options) (any, error),
) {
	NodeMain()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, name, register, measure); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func parse(name string, register func(*flag.FlagSet)) (Options, error) {
	var o Options
	var only, file string
	var short bool
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	flags.IntVar(&o.Rounds, "rounds", 3, "how often every row is run, `N` rounds of them all")
	flags.Float64Var(&o.Scale, "scale", 1, "multiply the operations of every row by `X`")
	flags.BoolVar(&short, "short", false, "one round of a quarter of the operations")
	flags.StringVar(&only, "only", "", "run the pairs row/contestant that match `REGEXP`, such as ^wake/ or /r1$")
	flags.StringVar(&o.CPUProfile, "cpuprofile", "", "write a CPU profile of the clients to `FILE`")
	flags.BoolVar(&o.JSON, "json", false, "end with one line of JSON")
	flags.StringVar(&file, "write", "", "write the tables into `FILE`, a document with a place for them")
	if register != nil {
		register(flags)
	}
	if err := flags.Parse(os.Args[1:]); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	if short {
		o.Rounds, o.Scale = 1, o.Scale/4
	}
	if o.Rounds < 1 || o.Scale <= 0 {
		return o, fmt.Errorf("--rounds %d --scale %g: want more than 0", o.Rounds, o.Scale)
	}
	var err error
	if o.page, err = OpenPage(name, file); err != nil {
		return o, err
	}
	if o.Only, err = regexp.Compile(only); err != nil {
		return o, fmt.Errorf("--only: %w", err)
	}
	return o, nil
}

func run(
	ctx context.Context, name string, register func(*flag.FlagSet),
	measure func(context.Context, io.Writer, Options) (any, error),
) error {
	o, err := parse(name, register)
	if err != nil {
		return err
	}
	if o.CPUProfile != "" {
		f, err := os.Create(o.CPUProfile)
		if err != nil {
			return fmt.Errorf("--cpuprofile: %w", err)
		}
		defer f.Close() //nolint:errcheck // a part of the profile is better than none
		if err := pprof.StartCPUProfile(f); err != nil {
			return fmt.Errorf("--cpuprofile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	result, failed := measure(ctx, os.Stdout, o)
	if result != nil {
		failed = errors.Join(failed, o.page.Save(os.Args[1:]))
	}
	if result == nil || !o.JSON {
		return failed
	}
	line, err := json.Marshal(result)
	if err != nil {
		return errors.Join(failed, fmt.Errorf("encode the result: %w", err))
	}
	_, err = fmt.Printf("%s\n", line)
	return errors.Join(failed, err)
}

// Text runs a benchmark without contestants, whose report is lines of text. It reads the flags (register adds some), measures, and under
// --json ends with one line of JSON. asJSON is the default of --json.
func Text(
	name string, args []string, out io.Writer, asJSON bool, register func(*flag.FlagSet), measure func(p *Printer) (any, error),
) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	register(flags)
	flags.BoolVar(&asJSON, "json", asJSON, "end with one line of JSON")
	write := flags.String("write", "", "write the report into `FILE`, a document with a place for it")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	page, err := OpenPage(name, *write)
	if err != nil {
		return err
	}
	p := &Printer{out: io.MultiWriter(out, page)}
	result, err := measure(p)
	if err := errors.Join(err, p.err); err != nil {
		return err
	}
	if err := page.SaveText(args); err != nil || !asJSON {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}
