package main

import (
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// options say what is run, and how often.
type options struct {
	arguments []string // for the tests, with -args before them
	kinds     []kind
	out       string
	packages  []string
	parallel  int
	race      bool
	run       string
	scratch   string // a folder for what is gone when the program ends
	timeout   time.Duration
}

// kind is a condition under which the tests run.
type kind struct {
	name  string
	runs  int
	loops int      // that keep a core busy meanwhile
	under []string // the command that the tests are run by
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("again", flag.ContinueOnError)
	idle := flags.Int("idle", 0, "runs on the machine as it is (3 if no runs are asked for)")
	busy := flags.Int("busy", 0, "runs beside two busy loops (2 if no runs are asked for)")
	oneCore := flags.Int("one-core", 0, "runs on one core (1 if no runs are asked for)")
	flags.StringVar(&o.out, "out", "", "folder for the output of failures (a new one by default)")
	flags.IntVar(&o.parallel, "parallel", 1, "runs at the same time")
	flags.BoolVar(&o.race, "race", false, "run the tests under the race detector")
	flags.StringVar(&o.run, "run", "", "run the tests that match, as go test does")
	flags.DurationVar(&o.timeout, "timeout", 0, "end the tests of a package after this time, as go test does")
	var usage strings.Builder
	flags.SetOutput(&usage)
	if flags.Parse(args) != nil {
		return o, errors.New(usage.String()) // begins with what is wrong
	}
	o.packages = flags.Args()
	if i := slices.Index(o.packages, "-args"); i >= 0 {
		o.packages, o.arguments = o.packages[:i], o.packages[i:]
	}
	if len(o.packages) == 0 {
		o.packages = []string{"work"}
	}
	if *idle+*busy+*oneCore == 0 {
		*idle, *busy, *oneCore = 3, 2, 1
	}
	o.kinds = []kind{
		{name: "idle", runs: *idle},
		{name: "busy", runs: *busy, loops: 2},
		{name: "one-core", runs: *oneCore, under: []string{"taskset", "-c", "0"}},
	}
	o.kinds = slices.DeleteFunc(o.kinds, func(k kind) bool { return k.runs == 0 })
	for _, k := range o.kinds {
		if k.runs < 0 || o.parallel < 1 {
			return o, errors.New("runs are counted from one")
		}
		if len(k.under) > 0 {
			if _, err := exec.LookPath(k.under[0]); err != nil {
				return o, fmt.Errorf("run tests on one core: %w", err)
			}
		}
	}
	return o, nil
}
