package talk

import (
	"math"
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract/internal/lexicon"
	"github.com/expediter-io/expediter/services/importer/extract/internal/logistic"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// Document is a source as a whole.
type Document struct {
	// Sentences are what is said, and the lines that are written as a list or a method.
	Sentences []Sentence
	// Title is that of the source, cut into words as a sentence is.
	Title Sentence
	// Listed counts the written ingredients that have an amount and name a food, Written the lines of a written method.
	Listed, Written int
}

// Doubtful is the likelihood below which a document that is not refused carries a warning.
const Doubtful = 0.6

// Refused returns the likelihood below which the document is refused. Cooks who talk for long say much that has nothing to do with
// food, and no long talk about something else comes near to a cook's, so that less is required of a long document.
func (d *Document) Refused() float64 {
	if len(d.stream().Words) >= 200 {
		return 0.05
	}
	return 0.2
}

// Traits are what is observed of a document, by index. None depends on where sentences end, or on marks and capitals: speech that
// was recognized by a program has none.
type Traits [TraitCount]float64

// The traits. Those before FoodKinds are the logarithm of how often there is such a thing in a hundred words, and one; those up to
// Society count different words for the length; the others are shares.
const (
	FoodActed     = iota // something is done with a food
	FoodMeasured         //
	HeatNamed            //
	UntilNamed           //
	VesselNamed          //
	OrdersGiven          // a verb of the kitchen as an order or a plan, or what is being done
	PronounActed         // something is done with "it"
	TasteNamed           //
	StoriesTold          // the past
	FoodsSure            // foods that mean nothing else
	FoodsDoubtful        //
	FoodKinds            // how many different foods for the length
	KitchenWords         // how many different words of the kitchen, and so on
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
	FoodShare            // of the foods, those that something is done with
	KitchenShare         // of the words of subjects, those of the kitchen
	ListWritten          // an ingredient list, 1 from six entries on
	MethodWritten        // a method, 1 from four lines on
	TitleFood            // the title names a food or says that it is a recipe
	TraitCount
)

// TraitNames are the names of the traits.
var TraitNames = [TraitCount]string{
	"FoodActed", "FoodMeasured", "HeatNamed", "UntilNamed", "VesselNamed", "OrdersGiven", "PronounActed", "TasteNamed", "StoriesTold",
	"FoodsSure", "FoodsDoubtful", "FoodKinds", "KitchenWords", "Computing", "Workshop", "Garden", "Lab", "Body", "Health", "Home", "Animals",
	"Dining", "Society", "FoodShare", "KitchenShare", "ListWritten", "MethodWritten", "TitleFood",
}

var subjectTraits = map[string]int{
	"kitchen": KitchenWords, "computing": Computing, "workshop": Workshop, "garden": Garden, "lab": Lab, "body": Body, "health": Health,
	"home": Home, "animals": Animals, "dining": Dining, "society": Society,
}

// fewWords is how many words without anything are added to a document, so that little is no proof.
const fewWords = 8

// Traits returns what is observed of the document. The function is called every now and then, and ends it by an error, which is
// returned.
func (d *Document) Traits(stop func() error) (t Traits, err error) {
	s := d.stream()
	t.words(s)
	if err := t.deeds(s, stop); err != nil {
		return t, err
	}
	length := float64(len(s.Words) + fewWords)
	subjects := 0.0
	for trait := KitchenWords; trait <= Society; trait++ {
		subjects += t[trait]
	}
	t[FoodShare] = 3 * t[FoodActed] / (t[FoodsSure] + 2)
	t[KitchenShare] = 2 * t[KitchenWords] / (subjects + 1)
	said := subjects + t[FoodKinds] + 3
	for trait := range FoodShare {
		switch {
		case trait < FoodKinds:
			t[trait] = math.Log1p(100 * t[trait] / length)
		case trait <= KitchenWords:
			t[trait] *= 5 / math.Sqrt(length)
		default: // some words are chance
			t[trait] = 3 * max(0, t[trait]-0.07*math.Sqrt(length)) / said
		}
	}
	t[ListWritten], t[MethodWritten] = min(1, float64(d.Listed)/6), min(1, float64(d.Written)/4)
	for i, stem := range d.Title.Stems {
		if used, _ := lexicon.Food(d.Title.Stems, i); used > 0 || stem == "recip" {
			t[TitleFood] = 1
		}
	}
	return t, nil
}

// stream returns the words of all sentences as one, without marks.
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

// words counts the foods and the words of the subjects.
func (t *Traits) words(s *Sentence) {
	seen := map[string]bool{}
	begun := -10 // where the last verb stands
	for i := 0; i < len(s.Words); i++ {
		if acts(s, i) {
			begun = i
		}
		used, dependent := lexicon.Food(s.Stems, i)
		subject, more := lexicon.Domain(s.Stems, i)
		if trait, ok := subjectTraits[subject]; ok && used <= 1 {
			t.kind(trait, s.Stems[i:i+more], seen)
		}
		switch food := s.Stems[i : i+used]; {
		case used == 0 || dependent:
		case lexicon.Doubtful(food):
			t[FoodsDoubtful]++
		default:
			t[FoodsSure]++
			t.kind(FoodKinds, food, seen)
			t[FoodActed] += one(i-begun <= 6)
		}
		i += max(1, used, more) - 1
	}
}

// deeds counts what is done, and how it is spoken of.
func (t *Traits) deeds(s *Sentence, stop func() error) error {
	for i := range s.Words {
		if i%maxWords == 0 {
			if err := stop(); err != nil {
				return err
			}
		}
		var f Features
		f.thing(s, i)
		f.numbers(s, i)
		if acts(s, i) {
			t[OrdersGiven]++
			t[PronounActed] += one(pronouns[lower(s, i+1)] || pronouns[lower(s, i+2)])
		}
		for feature, trait := range observed {
			t[trait] += f[feature]
		}
		t[StoriesTold] += one(past[s.Words[i].Lower])
	}
	return nil
}

// observed are the features of words that are traits of their document.
var observed = map[int]int{AmountFood: FoodMeasured, HeatSaid: HeatNamed, Until: UntilNamed, Vessel: VesselNamed, Taste: TasteNamed}

// acts reports whether a verb of the kitchen at i is an order, a plan, or what is or was done. Without marks, an order shows by what
// follows it: "chop the onions", "add salt".
func acts(s *Sentence, i int) bool {
	a, ok := ActionAt(s, i)
	if !ok || a.Force < lexicon.Motion || a.Negated {
		return false
	}
	if a.Form != FormElse {
		return true
	}
	food, _ := lexicon.Food(s.Stems, i+1)
	return IsBase(s.Words[i].Lower) && (food > 0 || objects[lower(s, i+1)]) && !nouns[lower(s, i-1)] && !subjects[lower(s, i-1)]
}

// kind counts a name once.
func (t *Traits) kind(trait int, name []string, seen map[string]bool) {
	if key := TraitNames[trait] + strings.Join(name, " "); !seen[key] {
		seen[key] = true
		t[trait]++
	}
}

// Cooking returns how likely it is that somebody cooks in the document, in [0,1].
func (t *Traits) Cooking() float64 {
	return logistic.Sigmoid(logistic.Odds(cookingBase, cookingWeights[:], t[:]))
}
