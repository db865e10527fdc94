// Command fit computes the weights of the matcher from labelled pairs and writes them as Go source:
//
//	go run ./match/internal/fit -write match/weights.go PAIRS.jsonl
//
// A pair is one JSON object a line, {"left":{"name","addr","city","phone"},"right":{...},"label":0 or 1}. The fit is a
// logistic regression with a prior for every weight (priors.go), so a feature that the pairs say nothing about keeps the
// weight that general knowledge gives it. It is deterministic. With -cv it prints a cross-validation instead, by which
// the strength of the priors was chosen.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fit:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: fit [-cv] [-scale S] [-write FILE] PAIRS.jsonl")

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fit", flag.ContinueOnError)
	cv := flags.Bool("cv", false, "print a cross-validation over prior strengths")
	scale := flags.Float64("scale", chosenScale, "factor on the widths of the priors")
	write := flags.String("write", "", "write the weights to this file instead of printing them")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if flags.NArg() != 1 {
		return errUsage
	}
	pairs, err := readPairs(flags.Arg(0))
	if err != nil {
		return err
	}
	samples := prepare(pairs)
	if *cv {
		return crossValidate(out, samples)
	}
	source, err := render(fit(samples, *scale))
	if err != nil {
		return err
	}
	if *write == "" {
		_, err = out.Write(source)
	} else {
		err = os.WriteFile(*write, source, 0o644) //nolint:gosec // source code is for everyone to read
	}
	if err != nil {
		return fmt.Errorf("write weights: %w", err)
	}
	return nil
}
