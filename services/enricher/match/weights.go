package match

import (
	_ "embed" // the weights
	"slices"
	"strconv"
	"strings"
)

//go:embed weights.tsv
var weightsText string

// base is the log-odds of a pair without observations. weights has the number that each feature, when fully observed, adds to it.
var base, weights = parseWeights(weightsText)

// parseWeights panics on a mistake in the text, which is a part of the program.
func parseWeights(text string) (base float64, weights [features]float64) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		weight, err := strconv.ParseFloat(value, 64)
		i := slices.Index(featureNames[:], name)
		switch {
		case err == nil && name == "base":
			base = weight
		case err == nil && i >= 0:
			weights[i] = weight
		default:
			panic("match: weights.tsv: want the name of a feature and a number: " + line)
		}
	}
	return base, weights
}
