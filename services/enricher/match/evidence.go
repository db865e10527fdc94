package match

import (
	"math"
	"strconv"
	"strings"
)

// ModelVersion names the features and weights that made a score. A result that another version made should be matched again.
const ModelVersion = "places-4"

// Evidence reports how a score came about. It is small as JSON and one line as a string.
type Evidence struct {
	// Model is the ModelVersion that made it.
	Model string `json:"model"`
	// Score is the probability that the places are one venue, in [0,1].
	Score float64 `json:"score"`
	// Base is what the log-odds start from.
	Base float64 `json:"base"`
	// Features are the observations, in a fixed order. What was not observed is left out.
	Features []Feature `json:"features"`
}

// Feature is one observation and what it did to the score.
type Feature struct {
	// Name is the name of the observation, for example "phone.same".
	Name string `json:"name"`
	// Value is how strongly it was observed, in (0,1].
	Value float64 `json:"value"`
	// Contribution is what it added to the log-odds: above zero it speaks for a match.
	Contribution float64 `json:"contribution"`
}

// String returns the evidence as one readable line: the score, the base and each observation with its contribution.
func (e Evidence) String() string {
	var b strings.Builder
	b.WriteString(strconv.FormatFloat(e.Score, 'f', 3, 64))
	b.WriteString(" = base ")
	b.WriteString(strconv.FormatFloat(e.Base, 'f', 2, 64))
	for _, f := range e.Features {
		b.WriteString(", ")
		b.WriteString(f.Name)
		if f.Value != 1 {
			b.WriteByte(' ')
			b.WriteString(strconv.FormatFloat(f.Value, 'f', 2, 64))
		}
		if f.Contribution >= 0 {
			b.WriteString(" +")
		} else {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatFloat(f.Contribution, 'f', 2, 64))
	}
	return b.String()
}

// explain turns a vector into evidence.
func (v *vector) explain() Evidence {
	e := Evidence{Model: ModelVersion, Score: round(v.score()), Base: round(base)}
	for i, x := range v {
		if x != 0 {
			e.Features = append(e.Features, Feature{Name: featureNames[i], Value: round(x), Contribution: round(x * weights[i])})
		}
	}
	return e
}

// logOdds adds the observations up.
func (v *vector) logOdds() float64 {
	sum := base
	for i, x := range v {
		sum += x * weights[i]
	}
	return sum
}

// score returns the probability of a match.
func (v *vector) score() float64 { return 1 / (1 + math.Exp(-v.logOdds())) }

// round keeps four decimals, which is more than anyone reads and keeps the stored form small.
func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }
