// Package rig is the common part of the benchmarks that compare with peers: servers as separate processes, their
// costs, and tables of figures with their spreads.
package rig

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"strings"
	"syscall"
)

// Options are the flags that every benchmark with contestants takes.
type Options struct {
	Only   *regexp.Regexp // matches row/contestant
	Rounds int
	Scale  float64 // the factor of the number of operations of every row
}

// Main runs a benchmark with contestants, or a server if this process was started for that. It reads the flags (register may add some),
// measures, and writes the report in Markdown and, under --json, one line of JSON. A report with an error is written all the same.
func Main(name string, register func(*flag.FlagSet), measure func(context.Context, Options) (*Report, error)) {
	NodeMain()
	var o Options
	var only, profile string
	var short bool
	Text(name, func(flags *flag.FlagSet) {
		flags.IntVar(&o.Rounds, "rounds", 3, "how often every row is run, `N` rounds of them all")
		flags.Float64Var(&o.Scale, "scale", 1, "multiply the operations of every row by `X`")
		flags.BoolVar(&short, "short", false, "one round of a quarter of the operations")
		flags.StringVar(&only, "only", "", "run the pairs row/contestant that match `REGEXP`, such as ^wake/ or /r1$")
		flags.StringVar(&profile, "cpuprofile", "", "write a CPU profile of the clients to `FILE`")
		register(flags)
	}, func(text *strings.Builder) (_ any, err error) {
		if short {
			o.Rounds, o.Scale = 1, o.Scale/4
		}
		if o.Rounds < 1 || o.Scale <= 0 {
			return nil, fmt.Errorf("--rounds %d --scale %g: want more than 0", o.Rounds, o.Scale)
		}
		if o.Only, err = regexp.Compile(only); err != nil {
			return nil, fmt.Errorf("--only: %w", err)
		}
		if profile != "" {
			f, err := os.Create(profile)
			if err != nil {
				return nil, fmt.Errorf("--cpuprofile: %w", err)
			}
			defer f.Close()
			if err := pprof.StartCPUProfile(f); err != nil {
				return nil, fmt.Errorf("--cpuprofile: %w", err)
			}
			defer pprof.StopCPUProfile()
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		r, err := measure(ctx, o)
		if r == nil {
			return nil, err
		}
		text.WriteString(r.text.String())
		return r, err
	})
}

// Text runs a benchmark without contestants. It reads the flags (register adds some), measures, and writes the text and, under --json, one
// line of JSON. It exits with 1 after an error.
func Text(name string, register func(*flag.FlagSet), measure func(text *strings.Builder) (any, error)) {
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	asJSON := flags.Bool("json", false, "end with one line of JSON")
	register(flags)
	err := flags.Parse(os.Args[1:])
	if err == nil {
		var text strings.Builder
		var result any
		result, err = measure(&text)
		fmt.Print(text.String())
		if result != nil && *asJSON {
			err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(result))
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
