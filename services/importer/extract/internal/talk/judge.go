package talk

import (
	"context"
	_ "embed"
	"iter"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// Document is a source as a whole.
type Document struct {
	// Sentences are the spoken sentences, and the lines of a written list or method.
	Sentences []Sentence
	// Listed counts the written ingredients that have an amount and name a food.
	Listed int
}

// A document is refused below the first likelihood, and has a warning between the two.
const (
	Refused  = 0.55
	Doubtful = 0.85
)

// A document is judged by its likeliest stretch, because much of a cook's long talk is not about food: ten windows in a row, some four
// minutes of speech, or half of a short document. Every long talk has single windows that sound like a cook by chance.
const (
	window   = 120 // words; windows overlap by half
	stretch  = 10  // windows
	mostOdds = 4   // bounds the log-odds of one window, either way
)

// Cooking returns the likelihood, in [0,1], that somebody cooks in the likeliest stretch of the document.
func (d *Document) Cooking(ctx context.Context) (float64, error) {
	var windows []float64 // log-odds
	for s := range d.parts() {
		t, err := d.traits(ctx, s)
		if err != nil {
			return 0, err
		}
		x := -float64(mostOdds)
		if t.ofKitchen() >= 1 { // without any, all words may be unknown, which is no sign of a cook
			x = min(mostOdds, max(x, odds(cookingBase+said(s), cookingWeights[:], t[:])))
		}
		windows = append(windows, x)
	}
	most := math.Inf(-1)
	for row := min(stretch, (len(windows)+1)/2); len(windows) >= row; windows = windows[1:] {
		sum := 0.0
		for _, x := range windows[:row] {
			sum += x
		}
		most = max(most, sum/float64(row))
	}
	return likelihood(most), nil
}

// parts yields the words of the document in windows. The last window may be longer.
func (d *Document) parts() iter.Seq[*Sentence] {
	return func(yield func(*Sentence) bool) {
		s := d.stream()
		for from := 0; ; from += window / 2 {
			to := from + window
			if to+window/2 > len(s.Words) {
				to = len(s.Words)
			}
			if !yield(&Sentence{Words: s.Words[from:to], Stems: s.Stems[from:to]}) || to == len(s.Words) {
				return
			}
		}
	}
}

//go:embed stems.txt
var stemsText string

// stemWeights are the terms of the stems in the log-odds, before multiplication by the share in said.
var stemWeights = sync.OnceValue(func() map[string]float64 { return parseStems(stemsText) })

func parseStems(text string) map[string]float64 {
	out := map[string]float64{}
	for field := range strings.FieldsSeq(text) {
		stem, weight, _ := strings.Cut(field, ":")
		out[stem], _ = strconv.ParseFloat(weight, 64) // a part of the program
	}
	return out
}

// said returns the term of a part's words in the log-odds: each known stem counts once, and less the more there are.
func said(s *Sentence) float64 {
	sum, seen := 0.0, map[string]bool{}
	for _, stem := range s.Stems {
		if weight, known := stemWeights()[stem]; known && !seen[stem] {
			seen[stem] = true
			sum += weight
		}
	}
	return sum * (1.6 / math.Sqrt(float64(len(seen)+10)))
}

// traits are the observations of a document, by index. None depends on the ends of sentences, on marks or on capitals, which
// speech recognition does not write.
type traits [traitCount]float64

// The traits. Those before FoodKinds are log(1 + occurrences in a hundred words). Those up to Society count different words,
// relative to the length. The others are shares.
const (
	FoodActed     = iota // an action on a food
	HeatNamed            //
	UntilNamed           //
	VesselNamed          //
	PronounActed         // an action on "it"
	TasteNamed           //
	StoriesTold          // the past
	FoodsSure            // foods whose names have no other meaning
	FoodsDoubtful        //
	FoodKinds            // different foods, relative to the length
	KitchenWords         // different words of the kitchen, and so on
	Computing            //
	Workshop             //
	Garden               //
	Lab                  //
	Body                 //
	Health               //
	Home                 //
	Animals              //
	Dining               //
	Society              //
	KitchenShare         // words of the kitchen among the words of all subjects
	ListWritten          // an ingredient list, 1 from six entries on
	traitCount
)

var subjectTraits = map[string]int{
	"kitchen": KitchenWords, "computing": Computing, "workshop": Workshop, "garden": Garden, "lab": Lab, "body": Body, "health": Health,
	"home": Home, "animals": Animals, "dining": Dining, "society": Society,
}

// fewWords is the number of empty words that are added to a document, so that a short text is no proof.
const fewWords = 8

// traits returns the observations of a part of the document.
func (d *Document) traits(ctx context.Context, s *Sentence) (t traits, err error) {
	t.words(s)
	if err := t.deeds(ctx, s); err != nil {
		return t, err
	}
	length := float64(len(s.Words) + fewWords)
	subjects := 0.0
	for trait := KitchenWords; trait <= Society; trait++ {
		subjects += t[trait]
	}
	t[KitchenShare] = 2 * t[KitchenWords] / (subjects + 1)
	said := subjects + t[FoodKinds] + 3
	for trait := range KitchenShare {
		switch {
		case trait < FoodKinds:
			t[trait] = math.Log1p(100 * t[trait] / length)
		case trait <= KitchenWords:
			t[trait] *= 5 / math.Sqrt(length)
		default: // some words occur by chance
			t[trait] = 3 * max(0, t[trait]-0.07*math.Sqrt(length)) / said
		}
	}
	t[ListWritten] = min(1, float64(d.Listed)/6)
	return t, nil
}

// stream returns one sentence of the words of all sentences, without marks.
func (d *Document) stream() *Sentence {
	var s Sentence
	for i := range d.Sentences {
		for j, w := range d.Sentences[i].Words {
			if w.Kind != words.Mark {
				s.Words, s.Stems = append(s.Words, w), append(s.Stems, d.Sentences[i].Stems[j])
			}
		}
	}
	return &s
}

// ofKitchen sums what a window names of a kitchen: foods, heat, vessels, tastes.
func (t *traits) ofKitchen() float64 {
	return t[FoodsSure] + t[FoodsDoubtful] + t[HeatNamed] + t[VesselNamed] + t[TasteNamed] + t[KitchenWords]
}

// words counts the foods and the words of the subjects.
func (t *traits) words(s *Sentence) {
	seen := map[traitName]bool{}
	begun := -10 // the position of the last verb
	for i := 0; i < len(s.Words); i++ {
		if acts(s, i) {
			begun = i
		}
		used, dependent := words.Food(s.Stems, i)
		subject, more := words.Domain(s.Stems, i)
		if trait, ok := subjectTraits[subject]; ok && used <= 1 {
			t.kind(trait, s.Stems[i:i+more], seen)
		}
		switch food := s.Stems[i : i+used]; {
		case used == 0 || dependent:
		case words.Doubtful(food):
			t[FoodsDoubtful]++
		default:
			t[FoodsSure]++
			t.kind(FoodKinds, food, seen)
			t[FoodActed] += one(i-begun <= 6)
		}
		i += max(1, used, more) - 1
	}
}

// deeds counts actions, by the form of their verbs.
func (t *traits) deeds(ctx context.Context, s *Sentence) error {
	for i := range s.Words {
		if i%maxWords == 0 {
			if err := Ended(ctx); err != nil {
				return err
			}
		}
		kind := words.Thing(s.Stems, i)
		t[VesselNamed] += one(kind == "vessel")
		t[TasteNamed] += one(kind == "taste")
		_, heat := measure.ReadTemperature(s.Words, i)
		t[HeatNamed] += one(heat > 0)
		_, until := measure.ReadUntil(s.Words, i)
		t[UntilNamed] += one(until > 0)
		t[PronounActed] += one(acts(s, i) && (pronouns[lower(s, i+1)] || pronouns[lower(s, i+2)]))
		t[StoriesTold] += one(past[s.Words[i].Lower])
	}
	return nil
}

// acts reports whether a verb of the kitchen at i is an order, a plan, or an action in progress or past. Without marks, an order is
// recognised by the words behind it: "chop the onions", "add salt".
func acts(s *Sentence, i int) bool {
	a, ok := ActionAt(s, i)
	if !ok || a.Force < words.Motion || a.Negated {
		return false
	}
	if a.Form != FormElse {
		return true
	}
	food, _ := words.Food(s.Stems, i+1)
	return IsBase(s.Words[i].Lower) && (food > 0 || objects[lower(s, i+1)]) && !nouns[lower(s, i-1)] && !subjects[lower(s, i-1)]
}

// traitName is a name as one of the words of a trait.
type traitName struct {
	trait int
	name  string
}

// kind counts a name once.
func (t *traits) kind(trait int, name []string, seen map[traitName]bool) {
	key := traitName{trait, strings.Join(name, " ")}
	if !seen[key] {
		seen[key] = true
		t[trait]++
	}
}

// Score returns for every sentence the likelihood, in [0,1], that it tells an action of a cook.
func Score(features []Features) []float64 {
	out := make([]float64, len(features))
	for i := range features {
		out[i] = likelihood(odds(base, weights[:], features[i][:]))
	}
	return out
}

// odds returns the log-odds that weights give to observations. base is the log-odds without any.
func odds(base float64, weights, observed []float64) float64 {
	for j, x := range observed {
		base += weights[j] * x
	}
	return base
}

// likelihood returns the likelihood, in [0,1], of log-odds.
func likelihood(odds float64) float64 { return 1 / (1 + math.Exp(-odds)) }
