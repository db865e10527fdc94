// Command fit computes the weights of the matcher from labelled pairs and writes them as package match reads them:
//
//	go run ./match/internal/fit -write match/weights.tsv PAIRS.jsonl
//
// A pair is one JSON object a line, {"left":{"name","addr","city","phone"},"right":{...},"label":0 or 1}. The fit is a
// logistic regression with a prior for every weight (priors.tsv), so a feature that no pair shows keeps the weight that
// general knowledge gives it. It is deterministic.
package main

import (
	_ "embed" // the priors
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fit:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: fit [-write FILE] PAIRS.jsonl")

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fit", flag.ContinueOnError)
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
	text := render(fit(prepare(pairs)))
	if *write == "" {
		_, err = out.Write(text)
	} else {
		err = os.WriteFile(*write, text, 0o644) //nolint:gosec // weights are for everyone to read
	}
	if err != nil {
		return fmt.Errorf("write weights: %w", err)
	}
	return nil
}

const sweeps = 60

// fit returns the most probable weights, by Newton steps one weight at a time. Signs are kept by clamping, which is exact
// for a convex loss.
func fit(samples []sample) []float64 {
	w := make([]float64, len(priors))
	for j, p := range priors {
		w[j] = p.mean
	}
	odds := make([]float64, len(samples))
	columns := make([][]int, len(priors))
	for i, s := range samples {
		odds[i] = logOdds(w, s)
		for j := range s.values {
			columns[j] = append(columns[j], i)
		}
	}
	for range sweeps {
		for j, p := range priors {
			variance := p.width * p.width
			gradient, curvature := (w[j]-p.mean)/variance, 1/variance
			for _, i := range columns[j] {
				s := &samples[i]
				x, q := s.values[j], sigmoid(odds[i])
				gradient += s.weight * (q - s.label) * x
				curvature += s.weight * max(q*(1-q), 1e-3) * x * x
			}
			next := clamp(w[j]-gradient/curvature, p.sign)
			for _, i := range columns[j] {
				odds[i] += (next - w[j]) * samples[i].values[j]
			}
			w[j] = next
		}
	}
	return w
}

func clamp(x float64, sign int) float64 {
	switch {
	case sign > 0:
		return max(0, x)
	case sign < 0:
		return min(0, x)
	}
	return x
}

// logOdds adds in the order of the priors, so that the sum is the same in every run.
func logOdds(w []float64, s sample) float64 {
	sum := 0.0
	for j := range w {
		sum += w[j] * s.values[j]
	}
	return sum
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// prior is the assumption about a weight before any pair is seen: its mean, its width, and its sign.
type prior struct {
	name        string
	mean, width float64
	sign        int // 1: never negative, -1: never positive
}

// baseName stands for the constant term.
const baseName = "base"

//go:embed priors.tsv
var priorsText string

// priors has the prior of every feature, in any order.
var priors = parsePriors(priorsText)

func parsePriors(text string) (all []prior) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var p prior
		if _, err := fmt.Sscan(line, &p.name, &p.mean, &p.width, &p.sign); err != nil {
			panic(fmt.Sprintf("priors.tsv: %q: %v", line, err))
		}
		all = append(all, p)
	}
	return all
}

// head is the beginning of the file.
const head = `# What each feature adds to the log-odds of a pair when it is fully observed, and under "base" those of a pair of which
# nothing was observed. To make it again from labelled pairs, in the folder of the module:
#
#	go run ./match/internal/fit -write match/weights.tsv PAIRS.jsonl
`

// render returns the weights as package match reads them.
func render(w []float64) []byte {
	text := []byte(head)
	for j, p := range priors {
		text = fmt.Appendf(text, "%s\t%v\n", p.name, math.Round(w[j]*1000)/1000)
	}
	return text
}
