// Command fit computes the weights by which the rules extractor tells steps from talk, and writes them as Go source:
//
//	go run ./extract/rules/internal/fit -write extract/internal/talk/weights.go SENTENCES.csv
//
// SENTENCES.csv has a row per sentence of a transcript, with the columns VideoUrl, Title, TimeStamp, Sentence and
// IsUsefulSentence, 1 where people marked a step. The videos of every other dish, from the first on, are used; the others
// are left for validation. The fit is a logistic regression with a prior of zero for every weight. It is deterministic. With
// -cv it prints a cross-validation by dish instead, by which the strength of the prior and the threshold were chosen.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/expediter-io/expediter/services/importer/extract/internal/logistic"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fit:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: fit [-cv] [-width W] [-write FILE] SENTENCES.csv")

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fit", flag.ContinueOnError)
	cv := flags.Bool("cv", false, "print a cross-validation over prior widths")
	width := flags.Float64("width", chosenWidth, "how far a weight may stray from zero")
	write := flags.String("write", "", "write the weights to this file instead of printing them")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	if flags.NArg() != 1 {
		return errUsage
	}
	videos, err := readVideos(flags.Arg(0))
	switch {
	case err != nil:
		return err
	case *cv:
		return crossValidate(out, videos)
	}
	base, fitted := logistic.Fit(samples(videos), *width, nil)
	source, err := render(base, fitted, threshold(videos, *width))
	switch {
	case err != nil:
		return err
	case *write == "":
		_, err = out.Write(source)
	default:
		err = os.WriteFile(*write, source, 0o644) //nolint:gosec // source code is for everyone to read
	}
	if err != nil {
		return fmt.Errorf("write weights: %w", err)
	}
	return nil
}
