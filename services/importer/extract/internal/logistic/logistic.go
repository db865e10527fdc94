// Package logistic fits a logistic regression.
package logistic

import "math"

// sweeps is how often each weight is moved.
const sweeps = 40

// Sample is what was observed, with a label of 0 or 1.
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

// Fit returns the most probable weights, and the log-odds of a sample without anything, by Newton steps one weight at a time. The
// prior of each weight is zero, give or take width. Where signs are given, no weight has the other sign. It is deterministic.
func Fit(samples []Sample, width float64, signs []float64) (base float64, w []float64) {
	odds := make([]float64, len(samples))
	w = make([]float64, len(samples[0].Features))
	for range sweeps {
		base += step(samples, odds, func(*Sample) float64 { return 1 }, base, 10, 0)
		for j := range w {
			sign := 0.0
			if signs != nil {
				sign = signs[j]
			}
			w[j] += step(samples, odds, func(s *Sample) float64 { return s.Features[j] }, w[j], width, sign)
		}
	}
	return base, w
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

func step(samples []Sample, odds []float64, value func(*Sample) float64, at, width, sign float64) float64 {
	gradient, curvature := at/(width*width), 1/(width*width)
	for i := range samples {
		if x := value(&samples[i]); x != 0 {
			p := Sigmoid(odds[i])
			gradient += (p - samples[i].Label) * x
			curvature += max(p*(1-p), 1e-3) * x * x
		}
	}
	move := -gradient / curvature
	if sign*(at+move) < 0 {
		move = -at
	}
	for i := range samples {
		odds[i] += move * value(&samples[i])
	}
	return move
}
