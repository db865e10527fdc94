package rules

import (
	"bytes"
	"fmt"
	"go/format"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
)

// sample is an observation, with a label of 0 or 1.
type sample struct {
	features []float64
	label    float64
}

// sweeps is the number of steps for each weight.
const sweeps = 40

// fit returns the most probable weights of a logistic regression, and the log-odds of a sample without features, by Newton steps one weight
// at a time. The prior of each weight has mean zero and the given width. Where signs are given, no weight has the opposite sign. fit is
// deterministic.
func fit(samples []sample, width float64, signs []float64) (base float64, w []float64) {
	odds := make([]float64, len(samples))
	w = make([]float64, len(samples[0].features))
	every, columns := make([]entry, len(samples)), make([][]entry, len(w))
	for i, s := range samples {
		every[i] = entry{i, 1}
		for j, x := range s.features {
			if x != 0 {
				columns[j] = append(columns[j], entry{i, x})
			}
		}
	}
	for range sweeps {
		base += move(samples, odds, every, base, 10, 0)
		for j := range w {
			sign := 0.0
			if signs != nil {
				sign = signs[j]
			}
			w[j] += move(samples, odds, columns[j], w[j], width, sign)
		}
	}
	return base, w
}

// entry is a sample with a value that is not zero.
type entry struct {
	sample int
	value  float64
}

// move returns the next step of a weight, and adds it to the odds.
func move(samples []sample, odds []float64, column []entry, at, width, sign float64) float64 {
	gradient, curvature := at/(width*width), 1/(width*width)
	for _, e := range column {
		p := 1 / (1 + math.Exp(-odds[e.sample]))
		gradient += (p - samples[e.sample].label) * e.value
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

// video is a transcript, with the sentences that people marked as steps.
type video struct {
	dish     int // all videos of a dish are on one side of a cross-validation
	features []talk.Features
	marked   []bool
}

// videosOf reads rows of a sentence each, with a head: the videos of the dishes with even numbers, counted from 0 in the order of the rows.
// The others are left for validation.
func videosOf(rows [][]string) (out []video) {
	column := func(name string) int { return slices.Index(rows[0], name) }
	dishes := map[string]int{}
	for from := 1; from < len(rows); {
		to := from
		for to < len(rows) && rows[to][column("VideoUrl")] == rows[from][column("VideoUrl")] {
			to++
		}
		title := rows[from][column("Title")]
		if _, ok := dishes[title]; !ok {
			dishes[title] = len(dishes)
		}
		if dishes[title]%2 == 0 {
			out = append(out, newVideo(dishes[title]/2, rows[from:to], column))
		}
		from = to
	}
	return out
}

func newVideo(dish int, rows [][]string, column func(string) int) video {
	segments := make([]caption.Segment, len(rows))
	for i, row := range rows {
		segments[i] = caption.Segment{Start: timeOf(row[column("TimeStamp")]), Dur: 5 * time.Second, Text: row[column("Sentence")]}
		if i > 0 {
			segments[i-1].Dur = segments[i].Start - segments[i-1].Start
		}
	}
	sentences := talk.Sentences(segments)
	v := video{dish: dish, marked: make([]bool, len(sentences))}
	v.features, _ = talk.Observe(sentences, func() error { return nil }) //nolint:errcheck // the one error is that of the function
	for i, s := range sentences {
		for j, row := range rows {
			said := segments[j]
			if said.Start.Seconds() < s.End && s.Start < (said.Start+said.Dur).Seconds() && row[column("IsUsefulSentence")] == "1" {
				v.marked[i] = true
			}
		}
	}
	return v
}

// timeOf reads "01:30.5" and "0:01:30".
func timeOf(text string) time.Duration {
	total := 0.0
	for part := range strings.SplitSeq(text, ":") {
		x, err := strconv.ParseFloat(part, 64)
		if err != nil {
			break
		}
		total = total*60 + x
	}
	return time.Duration(total * float64(time.Second))
}

// fitSentences fits the sentences of the videos that are chosen by their dish.
func fitSentences(videos []video, chosen func(dish int) bool) (base float64, weights []float64) {
	var samples []sample
	for _, v := range videos {
		for i := range v.features {
			if chosen(v.dish) {
				samples = append(samples, sample{v.features[i][:], float64(one(v.marked[i]))})
			}
		}
	}
	const width = 0.5 // a cross-validation by dish has chosen it
	return fit(samples, width, nil)
}

func all(int) bool { return true }

// thresholdOf returns the level with the best F1 for dishes that were not used in a fit.
func thresholdOf(videos []video) float64 {
	const folds, levels = 5, 12
	level := func(k int) float64 { return 0.15 + 0.05*float64(k) }
	var hits, wrong [levels]int // decisions that are right, and that are not
	for fold := range folds {
		base, weights := fitSentences(videos, func(dish int) bool { return dish%folds != fold })
		for _, v := range videos {
			for i := range v.features {
				for k := range levels {
					found := v.dish%folds == fold && talk.Likelihood(base, weights, v.features[i][:]) >= level(k)
					marked := v.dish%folds == fold && v.marked[i]
					hits[k] += one(found && marked)
					wrong[k] += one(found != marked)
				}
			}
		}
	}
	best := 0
	f1 := func(k int) float64 { return float64(2*hits[k]) / float64(max(1, 2*hits[k]+wrong[k])) }
	for k := range levels {
		if f1(k) > f1(best) {
			best = k
		}
	}
	return level(best)
}

// The weights of sentences are those that the marked sentences give. With -args -speech FOLDER -write they are made again.
func TestWeightsAreThoseOfTheSentences(t *testing.T) {
	t.Parallel()
	const path = "../internal/talk/weights.go"
	videos := videosOf(markedSentences(t))
	base, weights := fitSentences(videos, all)
	var b bytes.Buffer
	round := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	fmt.Fprintf(&b, `// Code generated by a test of extract/rules. DO NOT EDIT.
//
// To make it again from marked sentences, in the folder of the module:
//
//	go test ./extract/rules -run Weights -args -speech FOLDER -write

package talk

// Threshold is the score from which on a sentence is a step.
const Threshold = %v

// base is the log-odds of a sentence of which nothing was observed.
const base = %v

// weights are the terms of the features in the log-odds.
var weights = Features{
`, round(thresholdOf(videos)), round(base))
	for j, w := range weights {
		fmt.Fprintf(&b, "%s: %v,\n", talk.Names[j], round(w))
	}
	b.WriteString("}\n")
	source := check.Must(format.Source(b.Bytes()))(t)
	if *write {
		check.OK(t, os.WriteFile(path, source, 0o600))
		return
	}
	check.Equal(t, string(check.Must(os.ReadFile(path))(t)), string(source))
}

// Orders are steps, praise is none. Dishes with odd numbers say the opposite, which nobody may learn from.
func TestSentencesOfEveryOtherDishAreLearntFrom(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"Title", "VideoUrl", "TimeStamp", "Sentence", "IsUsefulSentence"}}
	for dish := range 12 {
		for i := range 10 {
			text := []string{"it is so delicious my friends.", "add the onions to the pan."}[i%2]
			name := strconv.Itoa(dish)
			rows = append(rows, []string{name, name, fmt.Sprintf("00:%02d.0", 5*i), text, strconv.Itoa((i + dish) % 2)})
		}
	}
	videos := videosOf(rows)
	check.Require(t, len(videos) == 6 && len(videos[0].features) == 10, "%d videos, %d sentences", len(videos), len(videos[0].features))
	base, weights := fitSentences(videos, all)
	for i, f := range videos[0].features {
		p := talk.Likelihood(base, weights, f[:])
		check.That(t, (p > 0.5) == videos[0].marked[i], "sentence %d is %.2f, marked %v", i, p, videos[0].marked[i])
	}
	again, more := fitSentences(videos, all)
	check.That(t, again == base && slices.Equal(more, weights), "a second fit differs")
	check.That(t, weights[talk.StrongBase] > 0 && weights[talk.Taste] < 0,
		"an order weighs %v, praise %v", weights[talk.StrongBase], weights[talk.Taste])
}
