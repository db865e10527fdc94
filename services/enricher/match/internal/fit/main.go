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
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/format"
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

// chosenScale is the factor on the widths of the priors with the least log-loss in the cross-validation.
const chosenScale = 1

const (
	sweeps = 60
	folds  = 5
)

// fit returns the most probable weights, by Newton steps one weight at a time. Signs are kept by clamping, which is exact
// for a convex loss.
func fit(samples []sample, scale float64) []float64 {
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
			variance := p.width * p.width * scale * scale
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

// crossValidate prints the loss and the F1 of held-out pairs for several strengths of the priors.
func crossValidate(out io.Writer, samples []sample) error {
	for _, scale := range []float64{0.05, 0.25, 0.5, 1, 2, 4} {
		loss, weight := 0.0, 0.0
		var hits, wrong, missed [3]int
		for fold := range folds {
			var train, test []sample
			for _, s := range samples {
				if s.group%folds == fold {
					test = append(test, s)
				} else {
					train = append(train, s)
				}
			}
			w := fit(train, scale)
			for _, s := range test {
				o := logOdds(w, s)
				weight += s.weight
				loss += s.weight * (math.Log1p(math.Exp(-math.Abs(o))) + max(0, o) - o*s.label)
				if !s.plain {
					continue
				}
				switch {
				case o >= 0 && s.label == 1:
					hits[s.fields]++
				case o >= 0:
					wrong[s.fields]++
				case s.label == 1:
					missed[s.fields]++
				}
			}
		}
		if _, err := fmt.Fprintf(out, "scale %-5g log-loss %.5f  F1 all %.4f, no phone %.4f, name and city %.4f\n",
			scale, loss/weight, f1(hits[0], wrong[0], missed[0]), f1(hits[1], wrong[1], missed[1]), f1(hits[2], wrong[2], missed[2])); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

func f1(hits, wrong, missed int) float64 { return 2 * float64(hits) / float64(2*hits+wrong+missed) }

// prior is what is believed of a weight before any pair is seen: its mean, how far it may stray, and its sign.
type prior struct {
	name        string
	mean, width float64
	sign        int // 1: never negative, -1: never positive
}

// baseName stands for the constant term.
const baseName = "base"

// priors lists every feature in any order. The means are log-likelihood ratios from general knowledge: how much more often
// the observation is made of one venue in two sources than of two venues that a search returned. Widths of features that
// no pair without coordinates or in one script can show do not matter.
var priors = []prior{
	{baseName, -5.5, 1, -1},
	{"name.exact", 2.5, 1, 1},
	{"name.overlap", 2.5, 1, 1},
	{"name.contained", 2.2, 1, 1},
	{"name.joined", 1.5, 1, 1},
	{"name.conflict", -3, 1, -1},
	{"name.common", -1.5, 0.7, -1},
	{"name.cross", -0.1, 0.5, -1},
	{"name.short", -1.5, 0.5, -1},
	{"name.numbers_same", 0.2, 0.3, 1},
	{"name.numbers_differ", -2, 0.7, -1},
	{"name.unknown", 1.6, 0.5, 1},
	{"name.kinds_differ", -1.2, 0.7, -1},
	{"name.alone", -2, 0.3, -1},
	{"name.stranger", -3, 1, -1},
	{"name.translated", 5, 0.5, 1},
	{"branch.same", 0.4, 0.3, 1},
	{"branch.differs", -2.5, 0.7, -1},
	{"address.same", 4, 1, 1},
	{"address.street", 1.5, 0.7, 1},
	{"address.number_near", -0.5, 0.5, -1},
	{"address.number_differs", -2.8, 0.7, -1},
	{"address.other", -4.5, 0.7, -1},
	{"address.opposite", -3, 0.7, -1},
	{"address.number_only", 1, 0.5, 1},
	{"phone.same", 4.5, 1, 1},
	{"phone.local", 3, 0.5, 1},
	{"phone.differs", -2.5, 0.7, -1},
	{"geo.60m", 3.2, 0.5, 1},
	{"geo.150m", 2, 0.5, 1},
	{"geo.500m", -2, 0.5, -1},
	{"geo.1500m", -3.5, 0.5, -1},
	{"geo.far", -12, 0.5, -1},
	{"geo.far_same_address", -2, 0.5, -1},
	{"city.same", 0.6, 0.5, 1},
	{"city.differs", -1.5, 0.5, -1},
}

// render returns the weights as the source of package match.
func render(w []float64) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`// Code generated by match/internal/fit. DO NOT EDIT.
//
// To make it again from labelled pairs, in the folder of the module:
//
//	go run ./match/internal/fit -write match/weights.go PAIRS.jsonl

package match

`)
	for j, p := range priors {
		if p.name == baseName {
			fmt.Fprintf(&b, "// base is the log-odds of a pair of which nothing was observed.\nconst base = %v\n\n", round(w[j]))
		}
	}
	b.WriteString("// weights is what each feature adds to the log-odds when it is fully observed.\n")
	b.WriteString("var weights = [features]float64{\n")
	for j, p := range priors {
		if p.name != baseName {
			fmt.Fprintf(&b, "%s: %v,\n", identifier(p.name), round(w[j]))
		}
	}
	b.WriteString("}\n")
	source, err := format.Source(b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("format weights: %w", err)
	}
	return source, nil
}

// identifier returns the name of the constant of a feature.
func identifier(name string) string {
	if id, ok := map[string]string{
		"geo.60m": "geoSpot", "geo.150m": "geoDoor", "geo.500m": "geoBlock", "geo.1500m": "geoQuarter", "name.stranger": "strangers",
	}[name]; ok {
		return id
	}
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '_' })
	for i := 1; i < len(parts); i++ {
		parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
	}
	return strings.Join(parts, "")
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }
