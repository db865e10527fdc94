package talk

import "math"

// Score returns for every sentence how likely it is that a cook does something in it, in [0,1].
func Score(sentences []Sentence) []float64 {
	features := Observe(sentences)
	out := make([]float64, len(features))
	for i := range features {
		out[i] = Sigmoid(Sum(base, &weights, &features[i]))
	}
	return out
}

// Sum returns the log-odds of a sentence.
func Sum(base float64, weights, f *Features) float64 {
	for j := range f {
		base += weights[j] * f[j]
	}
	return base
}

// Sigmoid turns log-odds into a probability.
func Sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
