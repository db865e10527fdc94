package talk

import "github.com/expediter-io/expediter/services/importer/extract/internal/logistic"

// Score returns for every sentence how likely it is that a cook does something in it, in [0,1].
func Score(features []Features) []float64 {
	out := make([]float64, len(features))
	for i := range features {
		out[i] = logistic.Sigmoid(logistic.Odds(base, weights[:], features[i][:]))
	}
	return out
}
