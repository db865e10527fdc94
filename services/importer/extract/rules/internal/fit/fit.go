package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract/internal/logistic"
)

// chosenWidth is the width of the prior with the best log-loss or F1 in the cross-validation.
const chosenWidth = 0.5

const folds = 5

func samples(videos []video) []logistic.Sample {
	var out []logistic.Sample
	for _, v := range videos {
		for i := range v.features {
			out = append(out, logistic.New(v.features[i][:], v.marked[i]))
		}
	}
	return out
}

// tally counts decisions at one threshold.
type tally struct{ hits, wrong, missed int }

func (t tally) f1() float64 {
	return float64(2*t.hits) / float64(max(1, 2*t.hits+t.wrong+t.missed))
}

const thresholds = 12

func level(i int) float64 { return 0.15 + 0.05*float64(i) }

// heldOut scores every video by weights of the dishes in other folds.
func heldOut(videos []video, width float64) (loss float64, tallies [thresholds]tally) {
	n := 0
	for fold := range folds {
		var train []video
		for _, v := range videos {
			if v.dish%folds != fold {
				train = append(train, v)
			}
		}
		base, weights := logistic.Fit(samples(train), width, nil)
		for _, v := range videos {
			if v.dish%folds != fold {
				continue
			}
			for i := range v.features {
				p := logistic.Sigmoid(logistic.Odds(base, weights, v.features[i][:]))
				loss += logLoss(p, v.marked[i])
				n++
				for k := range tallies {
					tallies[k].add(p >= level(k), v.marked[i])
				}
			}
		}
	}
	return loss / float64(max(1, n)), tallies
}

func (t *tally) add(found, marked bool) {
	switch {
	case found && marked:
		t.hits++
	case found:
		t.wrong++
	case marked:
		t.missed++
	}
}

// threshold returns the level with the best F1 on held-out dishes.
func threshold(videos []video, width float64) float64 {
	_, tallies := heldOut(videos, width)
	best := 0
	for k := range tallies {
		if tallies[k].f1() > tallies[best].f1() {
			best = k
		}
	}
	return level(best)
}

func crossValidate(out io.Writer, videos []video) error {
	for _, width := range []float64{0.1, 0.2, 0.3, 0.5, 0.7, 1, 2} {
		loss, tallies := heldOut(videos, width)
		var scores strings.Builder
		for k, t := range tallies {
			fmt.Fprintf(&scores, " %.2f:%.3f", level(k), t.f1())
		}
		if _, err := fmt.Fprintf(out, "width %-4v log-loss %.4f  F1%s\n", width, loss, scores.String()); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}
