// Package logistic fits a logistic regression.
package logistic

import "math"

// sweeps is the number of steps for each weight.
const sweeps = 40

// Sample is an observation, with a label of 0 or 1.
type Sample struct {
	Features []float64
	Label    float64
}

// New returns a sample.
func New(features []float64, marked bool) Sample {
	s := Sample{Features: features}
	if marked {
		s.Label = 1
	}
	return s
}

// Fit returns the most probable weights, and the log-odds of a sample without features, by Newton steps one weight at a time. The
// prior of each weight has mean zero and the given width. Where signs are given, no weight has the opposite sign. Fit is
// deterministic.
func Fit(samples []Sample, width float64, signs []float64) (base float64, w []float64) {
	odds := make([]float64, len(samples))
	w = make([]float64, len(samples[0].Features))
	every, columns := make([]entry, len(samples)), make([][]entry, len(w))
	for i, s := range samples {
		every[i] = entry{i, 1}
		for j, x := range s.Features {
			if x != 0 {
				columns[j] = append(columns[j], entry{i, x})
			}
		}
	}
	for range sweeps {
		base += step(samples, odds, every, base, 10, 0)
		for j := range w {
			sign := 0.0
			if signs != nil {
				sign = signs[j]
			}
			w[j] += step(samples, odds, columns[j], w[j], width, sign)
		}
	}
	return base, w
}

// entry is a sample with a value that is not zero.
type entry struct {
	sample int
	value  float64
}

// Odds returns the log-odds that weights give to features.
func Odds(base float64, weights, features []float64) float64 {
	for j, x := range features {
		base += weights[j] * x
	}
	return base
}

// Sigmoid turns log-odds into a probability.
func Sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func step(samples []Sample, odds []float64, column []entry, at, width, sign float64) float64 {
	gradient, curvature := at/(width*width), 1/(width*width)
	for _, e := range column {
		p := Sigmoid(odds[e.sample])
		gradient += (p - samples[e.sample].Label) * e.value
		curvature += max(p*(1-p), 1e-3) * e.value * e.value
	}
	move := -gradient / curvature
	if sign*(at+move) < 0 {
		move = -at
	}
	for _, e := range column {
		odds[e.sample] += move * e.value
	}
	return move
}
