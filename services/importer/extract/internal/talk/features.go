package talk

import (
	"context"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// Features are the observations of a sentence, by index; most are 0 or 1.
type Features [featureCount]float64

// The features. They are those without which a fit knows less: others, such as greetings and questions, were tried.
const (
	StrongBase  = iota // a strong verb as an order or a plan: "add", "we 're going to add"
	StrongIng          // "adding", "i 'm chopping"
	StrongPast         // "i 've chopped"
	StrongElse         // a strong verb in the base form elsewhere
	StrongMore         // a second strong verb
	MotionBase         // a verb of motion as an order or a plan
	MotionElse         //
	LightBase          //
	StrongFood         // a strong verb with a food soon after it
	LightFood          // a light verb with a food soon after it
	VerbPronoun        // a verb of the first two kinds with "it", "them", "this" after it
	FoodOne            // foods named
	FoodMore           //
	AmountFood         // an amount of something
	HeatSaid           // a temperature
	Until              // "until ..."
	Vessel             // a vessel or a tool
	Plan               // "going to", "i 'll", "let 's", "want to"
	Sequence           // "next", "then", "now"
	First              // the sentence begins with a verb of the kitchen
	Negated            // a verb of the kitchen after "not"
	PastTalk           // "was", "were", "had", "used to"
	Taste              //
	Option             //
	Reason             //
	Story              //
	State              //
	IfWhen             // begins with "if"
	Short              // less than five words
	Long               // more than 25 words
	VeryLong           // more than 60 words
	Beginning          // the first tenth of the video
	Ending             // the last tenth
	NoVerb             // no verb of the kitchen in any form
	Core               // one of the core verbs of recipes, as an order, a plan or in progress
	GiveIt             // "give it a stir"
	Habit              // "usually", "like to"
	featureCount
)

// Observe returns the features of every sentence.
func Observe(ctx context.Context, sentences []Sentence) ([]Features, error) {
	out := make([]Features, len(sentences))
	total := 1.0
	if len(sentences) > 0 {
		total = max(1, sentences[len(sentences)-1].End)
	}
	for i := range sentences {
		if err := Ended(ctx); err != nil {
			return nil, err
		}
		f := &out[i]
		observe(f, &sentences[i])
		// A long sentence is placed by its middle.
		switch place := (sentences[i].Start + sentences[i].End) / 2 / total; {
		case place < 0.1:
			f[Beginning] = 1
		case place > 0.9:
			f[Ending] = 1
		}
	}
	return out, nil
}

func observe(f *Features, s *Sentence) {
	count := 0
	f[NoVerb] = 1
	for i := range s.Words {
		if s.Words[i].Kind != words.Mark {
			count++
		}
		if feature, ok := things[words.Thing(s.Stems, i)]; ok {
			f[feature] = 1
		}
		f.numbers(s, i)
		if action, ok := ActionAt(s, i); ok {
			f.action(s, action)
		}
		f.manner(s, i)
	}
	f.foods(s)
	f[Short] = one(count < 5)
	f[Long] = one(count > 25)
	f[VeryLong] = one(count > 60)
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// things are the features of words and phrases, by their kinds.
var things = map[string]int{
	"vessel": Vessel, "sequence": Sequence, "taste": Taste, "option": Option, "reason": Reason, "story": Story, "state": State,
}

func (f *Features) numbers(s *Sentence, i int) {
	if a, used := measure.ReadAmount(s.Words, i); used > 0 {
		next := i + used
		for next < min(len(s.Words), i+used+3) {
			if n, _ := words.Food(s.Stems, next); n > 0 && (a.Unit.Name != "" || !a.Number.Vague) {
				f[AmountFood] = 1
			}
			next++
		}
	}
	if _, used := measure.ReadTemperature(s.Words, i); used > 0 {
		f[HeatSaid] = 1
	}
	if _, used := measure.ReadUntil(s.Words, i); used > 0 {
		f[Until] = 1
	}
}

// forms are the features of verbs by their form.
var forms = map[words.Force]map[Form]int{
	words.Strong: {FormBase: StrongBase, FormIng: StrongIng, FormPast: StrongPast, FormElse: StrongElse},
	words.Motion: {FormBase: MotionBase, FormElse: MotionElse},
	words.Light:  {FormBase: LightBase},
}

func (f *Features) action(s *Sentence, a Action) {
	if a.Negated {
		f[Negated] = 1
		return
	}
	f[NoVerb] = 0
	if a.Force == words.Strong && f[StrongBase]+f[StrongIng]+f[StrongPast] > 0 {
		f[StrongMore] = 1
	}
	if feature, ok := forms[a.Force][a.Form]; ok {
		f[feature] = 1
	}
	if a.Form <= FormIng && core[s.Stems[a.At]] {
		f[Core] = 1
	}
	if a.At == firstWord(s) {
		f[First] = 1
	}
	if a.Form == FormElse {
		return
	}
	for j := a.At + 1; j < min(len(s.Words), a.At+6); j++ {
		if s.Words[j].Kind == words.Mark && s.Words[j].Lower != "-" {
			break
		}
		if n, _ := words.Food(s.Stems, j); n > 0 {
			f[StrongFood] = max(f[StrongFood], one(a.Force == words.Strong))
			f[LightFood] = max(f[LightFood], one(a.Force == words.Light))
		}
		if pronouns[s.Words[j].Lower] && a.Force >= words.Motion && j <= a.At+2 {
			f[VerbPronoun] = 1
		}
	}
}

func firstWord(s *Sentence) int {
	return slices.IndexFunc(s.Words, func(w words.Word) bool { return w.Kind == words.Letters && !fillers[w.Lower] })
}

var (
	pronouns = words.Set("it them this these those everything that all 'em")
	past     = words.Set("was were had did used")
)

// core has the stems of the verbs that recipes are made of.
var core = stemSet("add put pour mix stir combine chop cut slice dice place cook bake fry boil simmer blend whisk peel sprinkle")

func stemSet(list string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		out[words.Stem(w)] = true
	}
	return out
}

// manner observes how the speaker presents an action.
func (f *Features) manner(s *Sentence, i int) {
	w, next := s.Words[i].Lower, lower(s, i+1)
	f[PastTalk] = max(f[PastTalk], one(past[w]))
	switch w {
	case "want", "need", "got", "have", "ready", "going":
		f[Plan] = max(f[Plan], one(next == "to"))
	case "gonna", "gotta", "'ll", "wanna":
		f[Plan] = 1
	case "let":
		f[Plan] = max(f[Plan], one(next == "'s"))
	case "give":
		f[GiveIt] = max(f[GiveIt], one(lower(s, i+2) == "a"))
	case "usually", "normally", "sometimes", "always", "often", "generally":
		f[Habit] = 1
	case "like", "love", "prefer":
		f[Habit] = max(f[Habit], one(next == "to"))
	case "if":
		f[IfWhen] = max(f[IfWhen], one(i == firstWord(s)))
	}
}

func lower(s *Sentence, i int) string {
	if i < 0 || i >= len(s.Words) {
		return ""
	}
	return s.Words[i].Lower
}

func (f *Features) foods(s *Sentence) {
	n := 0
	for i := 0; i < len(s.Words); {
		used, dependent := words.Food(s.Stems, i)
		if used > 0 && !dependent {
			n++
		}
		i += max(1, used)
	}
	f[FoodOne] = one(n > 0)
	f[FoodMore] = float64(min(max(n-1, 0), 3)) / 3
}

// Threshold is the score from which on a sentence is a step.
const Threshold = 0.25

// base is the log-odds of a sentence of which nothing was observed.
const base = -2.357

// weights are the terms of the features in the log-odds: a logistic regression over the sentences of 30 cooking videos in
// which people had marked the steps.
var weights = Features{
	StrongBase:  0.699,
	StrongIng:   0.776,
	StrongPast:  -0.182,
	StrongElse:  0.656,
	StrongMore:  -0.037,
	MotionBase:  0.543,
	MotionElse:  0.333,
	LightBase:   -0.156,
	StrongFood:  0.539,
	LightFood:   -0.209,
	VerbPronoun: 0.403,
	FoodOne:     0.857,
	FoodMore:    0.183,
	AmountFood:  0.496,
	HeatSaid:    0.663,
	Until:       0.318,
	Vessel:      0.25,
	Plan:        0.277,
	Sequence:    0.259,
	First:       0.649,
	Negated:     -0.367,
	PastTalk:    -0.111,
	Taste:       -0.157,
	Option:      -0.578,
	Reason:      0.318,
	Story:       -0.27,
	State:       -0.484,
	IfWhen:      -0.147,
	Short:       -0.703,
	Long:        0.054,
	VeryLong:    -0.679,
	Beginning:   -0.688,
	Ending:      -0.589,
	NoVerb:      -0.914,
	Core:        0.47,
	GiveIt:      0.464,
	Habit:       -0.166,
}

// cookingBase is the log-odds of a document of which nothing was observed.
const cookingBase = 2.853

// cookingWeights are the terms of the traits in the log-odds. With those of the stems, in stems.txt, they are a logistic
// regression over texts that were written for it, small talk, and real speech. No stem of small talk has a positive weight.
var cookingWeights = traits{
	FoodActed:     0.608,
	HeatNamed:     0.681,
	UntilNamed:    0.084,
	VesselNamed:   0.333,
	PronounActed:  0.894,
	TasteNamed:    0.676,
	StoriesTold:   -0.365,
	FoodsSure:     0.599,
	FoodsDoubtful: 0.182,
	FoodKinds:     0.000,
	KitchenWords:  0.000,
	Computing:     -1.882,
	Workshop:      -5.795,
	Garden:        -2.387,
	Lab:           -3.308,
	Body:          -4.803,
	Health:        -3.341,
	Home:          -4.298,
	Animals:       -3.357,
	Dining:        -1.598,
	Society:       -2.751,
	KitchenShare:  1.309,
	ListWritten:   1.985,
}
