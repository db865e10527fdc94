package main

import (
	"fmt"
	"io"
	"math"
)

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
