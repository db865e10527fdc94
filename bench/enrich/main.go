// Command enrich measures the enricher over TCP on the loopback: how long it takes to answer requests whose places are
// all known (hit), and requests of places that nobody has asked for before (miss).
//
//	go -C bench run ./enrich [--rounds N] [--scale X] [--only REGEXP] [--memory BYTES] [--json] [--cpuprofile FILE] [--memprofile FILE]
//
// Every round starts a NATS server, an enricher and its clients in this process, connected by TCP sockets, and runs
// every case once. A figure is the median of the rounds, with the least and the greatest of them beside it.
//
// One client asks one request after the other and lets the enricher finish its jobs in between, outside the time that
// is measured; 16 clients ask without a pause. The CPU time of a request is what the whole process spent: client,
// enricher, NATS server and, for a miss, the jobs. Places that are missed have ids never used before, and the provider
// answers at once with the one venue that matches. The 99th percentile of fewer than a hundred requests is their
// slowest.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "enrich:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	cpuProfile string
	json       bool
	memProfile string
	memory     int64
	only       *regexp.Regexp
	rounds     int
	scale      float64
}

func parse(args []string) (options, error) {
	var o options
	var only string
	flags := flag.NewFlagSet("enrich", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "how often every case is run, `N` rounds of them all")
	flags.Float64Var(&o.scale, "scale", 1, "multiply the requests of every case by `X`")
	flags.StringVar(&only, "only", "", "run the cases whose name matches `REGEXP`, such as http/hit/10/")
	flags.Int64Var(&o.memory, "memory", 0, "keep results in `BYTES` of the enricher's memory; 0 is its default, -1 keeps none")
	flags.StringVar(&o.cpuProfile, "cpuprofile", "", "write a CPU profile of everything to `FILE`")
	flags.StringVar(&o.memProfile, "memprofile", "", "write a profile of every allocation to `FILE`, and be slower")
	flags.BoolVar(&o.json, "json", false, "end with one line of JSON")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	if o.rounds < 1 || o.scale <= 0 {
		return o, fmt.Errorf("--rounds %d --scale %g: want more than 0", o.rounds, o.scale)
	}
	var err error
	if o.only, err = regexp.Compile(only); err != nil {
		return o, fmt.Errorf("--only: %w", err)
	}
	return o, nil
}

func run(args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	stop, err := profile(o)
	if err != nil {
		return err
	}
	result, err := measure(out, o)
	if err = errors.Join(err, stop()); err != nil || !o.json {
		return err
	}
	line, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", line)
	return err
}
