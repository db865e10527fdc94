package match

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var (
	pairsFile = flag.String("pairs", "", "`file` of labelled pairs, to fit the weights to")
	write     = flag.Bool("write", false, "write the fitted weights to weights.tsv")
)

// record is one side of a labelled pair.
type record struct {
	Addr  string `json:"addr"`
	City  string `json:"city"`
	Name  string `json:"name"`
	Phone string `json:"phone"`
}

// pair is a labelled pair, one to a line of a file.
type pair struct {
	Label float64 `json:"label"` // 0 or 1
	Left  record  `json:"left"`
	Right record  `json:"right"`
}

// values has 1 for the base, and behind it the values of the features of a pair.
type values [1 + features]float64

func (v *values) logOdds(weights *values) (sum float64) {
	for j, x := range v {
		sum += weights[j] * x
	}
	return sum
}

// sample is one observed pair.
type sample struct {
	values

	label  float64
	weight float64
	plain  bool // a labelled pair as given, or without its telephone, or with name and city only
}

// masks lists the sets of fields that a sample keeps, because the weights have to hold when fields are missing.
var masks = []struct{ addr, city, phone bool }{
	{true, true, true},
	{true, true, false},
	{false, true, false},
	{true, false, false},
	{false, true, true},
	{true, false, true},
}

func sampleOf(left, right record, mask int, label, weight float64) sample {
	s := sample{values: values{1}, label: label, weight: weight, plain: mask < 3}
	for i, x := range observe(left.masked(mask), right.masked(mask)) {
		s.values[1+i] = round(x) // as evidence is stored
	}
	return s
}

func (r record) masked(mask int) *Prepared {
	p := Place{Name: r.Name}
	if masks[mask].addr {
		p.Address = r.Addr
	}
	if masks[mask].city {
		p.City = r.City
	}
	if masks[mask].phone {
		p.Phone = r.Phone
	}
	return Prepare(p)
}

// extraWeight is the weight of all pairs made of records that do not belong together, relative to that of the labelled ones.
const extraWeight = 0.5

// samplesOf observes every labelled pair under every mask, and the pairs that follow from the labels: a record whose match is known
// matches no other record of the other source.
func samplesOf(pairs []pair) []sample {
	var out, strangers []sample
	var rights []record
	for _, p := range pairs {
		for mask := range masks {
			out = append(out, sampleOf(p.Left, p.Right, mask, p.Label, 1/float64(len(masks))))
		}
		if !slices.Contains(rights, p.Right) {
			rights = append(rights, p.Right)
		}
	}
	for _, p := range pairs {
		for _, r := range rights {
			for mask := 0; mask < 3 && p.Label == 1 && r != p.Right; mask++ {
				strangers = append(strangers, sampleOf(p.Left, r, mask, 0, 0))
			}
		}
	}
	for i := range strangers {
		strangers[i].weight = extraWeight * float64(len(pairs)) / float64(len(strangers))
		strangers[i].plain = false
	}
	return append(out, strangers...)
}

// prior is the assumption about a weight before any pair is seen.
type prior struct {
	mean, width float64
	sign        float64 // 1: never negative, -1: never positive
}

// priors returns the names of the weights in the order of their file, and the prior of each.
func priors(t *testing.T) (names []string, all [1 + features]prior) {
	t.Helper()
	for _, row := range check.Rows(t, "testdata/priors.tsv") {
		var p prior
		check.OK(t, check.Err(fmt.Sscan(strings.Join(row[1:], " "), &p.mean, &p.width, &p.sign)))
		check.That(t, p.width > 0 && p.sign*p.mean >= 0 && !slices.Contains(names, row[0]), "the prior %v", row)
		names, all[indexOf(t, row[0])] = append(names, row[0]), p
	}
	check.Same(t, "priors", len(names), len(all))
	return names, all
}

func indexOf(t *testing.T, name string) int {
	t.Helper()
	if name == "base" {
		return 0
	}
	i := slices.Index(featureNames[:], name)
	check.Require(t, i >= 0, "there is no feature %s", name)
	return 1 + i
}

// sweeps is the number of steps for each weight.
const sweeps = 60

// fit returns the most probable weights, by Newton steps one weight at a time. A feature that no pair shows keeps its prior. Signs are kept
// by clamping, which is exact for a convex loss. fit is deterministic.
func fit(priors [1 + features]prior, samples []sample) (w values) {
	for j, p := range &priors {
		w[j] = p.mean
	}
	odds := make([]float64, len(samples))
	var columns [1 + features][]int
	for i := range samples {
		odds[i] = samples[i].logOdds(&w)
		for j, x := range samples[i].values {
			if x != 0 {
				columns[j] = append(columns[j], i)
			}
		}
	}
	for range sweeps {
		for j, p := range &priors {
			variance := p.width * p.width
			gradient, curvature := (w[j]-p.mean)/variance, 1/variance
			for _, i := range columns[j] {
				s := &samples[i]
				x, q := s.values[j], 1/(1+math.Exp(-odds[i]))
				gradient += s.weight * (q - s.label) * x
				curvature += s.weight * max(q*(1-q), 1e-3) * x * x
			}
			next := w[j] - gradient/curvature
			if p.sign*next < 0 {
				next = 0
			}
			for _, i := range columns[j] {
				odds[i] += (next - w[j]) * samples[i].values[j]
			}
			w[j] = next
		}
	}
	return w
}

// The weights in use are those that the labelled pairs give, but for one in the last digit. With -args -pairs FILE -write they are made
// again.
func TestWeightsAreThoseOfThePairs(t *testing.T) {
	t.Parallel()
	if *pairsFile == "" {
		t.Skip("-args -pairs FILE names no labelled pairs")
	}
	var pairs []pair
	for line := range bytes.Lines(check.Must(os.ReadFile(*pairsFile))(t)) {
		var p pair
		check.OK(t, json.Unmarshal(line, &p))
		pairs = append(pairs, p)
	}
	names, assumed := priors(t)
	w := fit(assumed, samplesOf(pairs))
	remarks, _, _ := strings.Cut(weightsText, "base\t")
	text := []byte(remarks)
	inUse := append([]float64{base}, weights[:]...)
	for _, name := range names {
		i := indexOf(t, name)
		fitted := math.Round(w[i]*1000) / 1000
		text = fmt.Appendf(text, "%s\t%v\n", name, fitted)
		check.That(t, *write || math.Abs(fitted-inUse[i]) < 0.0015, "%s weighs %v, and the pairs give %v", name, inUse[i], fitted)
	}
	if *write {
		check.OK(t, os.WriteFile("weights.tsv", text, 0o600))
	}
}

func TestFitKeepsSignsAndWhatNoPairShows(t *testing.T) {
	t.Parallel()
	var pairs []pair
	restaurants := []string{"Spago", "Patina", "Matsuhisa", "Granita", "Valentino", "Citrus", "Campanile", "Picholine"}
	for i, name := range restaurants { // matches agree in all fields, the others share a street
		left := record{fmt.Sprintf("%d Herzl St", 10+i), "Haifa", name, fmt.Sprintf("04-85512%02d", i)}
		right := record{fmt.Sprintf("Herzl Street %d", 10+i), "Haifa", "The " + name, fmt.Sprintf("+972 4 85512%02d", i)}
		other := record{fmt.Sprintf("%d Herzl St", 40+i), "Haifa", restaurants[(i+1)%len(restaurants)], fmt.Sprintf("04-85599%02d", i)}
		pairs = append(pairs, pair{1, left, right}, pair{0, left, other})
	}
	names, assumed := priors(t)
	samples := samplesOf(pairs)
	w := fit(assumed, samples)
	check.Equal(t, w, fit(assumed, samplesOf(pairs)))
	for _, name := range names {
		p, weight := assumed[indexOf(t, name)], w[indexOf(t, name)]
		check.That(t, !(p.sign*weight < 0), "%s weighs %v", name, weight)
		check.That(t, !strings.HasPrefix(name, "geo.") || !(math.Abs(weight-p.mean) > 1e-9),
			"%s was never observed and moved from %v to %v", name, p.mean, weight)
	}
	for _, s := range samples {
		check.That(t, !s.plain || (s.logOdds(&w) > 0) == (s.label == 1), "a plain pair with label %v has log-odds %.2f", s.label, s.logOdds(&w))
	}
}

// TestSignsHoldAgainstTheData fits pairs in which a telephone that agrees speaks against a match.
func TestSignsHoldAgainstTheData(t *testing.T) {
	t.Parallel()
	var samples []sample
	for range 400 {
		samples = append(samples, sample{values: values{0: 1, 1 + phoneSame: 1}, weight: 1}, sample{values: values{1}, label: 1, weight: 1})
	}
	_, assumed := priors(t)
	check.Same(t, "phone.same weighs", fit(assumed, samples)[1+phoneSame], 0)
}
