package talk

import (
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract/internal/lexicon"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// Features are the observations of a sentence, by index; most are 0 or 1.
type Features [Count]float64

// The features.
const (
	StrongBase  = iota // a strong verb as an order or a plan: "add", "we 're going to add"
	StrongIng          // "adding", "i 'm chopping"
	StrongPast         // "i 've chopped"
	StrongElse         // a strong verb in the base form elsewhere
	StrongMore         // a second strong verb
	MotionBase         // a verb of motion as an order or a plan
	MotionIng          //
	MotionPast         //
	MotionElse         //
	LightBase          //
	LightElse          //
	StrongFood         // a strong verb with a food soon after it
	MotionFood         // a verb of motion with a food soon after it
	LightFood          //
	VerbPronoun        // a verb of the first two kinds with "it", "them", "this" after it
	FoodOne            // foods named
	FoodMore           //
	AmountFood         // an amount of something
	TimeSaid           // a duration
	HeatSaid           // a temperature
	Until              // "until ..."
	Vessel             // a vessel or a tool
	Plan               // "going to", "i 'll", "let 's", "want to"
	Sequence           // "next", "then", "now"
	First              // the sentence begins with a verb of the kitchen
	GoesIn             // "goes in", "going in"
	Question           //
	Negated            // a verb of the kitchen after "not"
	PastTalk           // "was", "were", "had", "used to"
	CopulaStart        // begins with "this is", "it 's", "that 's", "there", "here"
	YouCan             // "you can", "you could"
	Greet              //
	GreetMore          //
	Taste              //
	Option             //
	Reason             //
	Announce           //
	Story              //
	State              //
	IfWhen             // begins with "if"
	Short              // less than five words
	Long               // more than 25 words
	VeryLong           // more than 60 words
	Beginning          // the first tenth of the video
	Early              // the second tenth
	Ending             // the last tenth
	NoVerb             // no verb of the kitchen in any form
	Core               // one of the core verbs of recipes, as an order, a plan or in progress
	GiveIt             // "give it a stir"
	Have               // "i have", "we 've got", "you need" before a food
	Habit              // "usually", "like to"
	Tip                // "make sure", "do n't forget"
	TheyDo             // begins with other people: "people", "he", "they"
	Count
)

// Names has the names of the features, by number.
var Names = strings.Fields(`
StrongBase StrongIng StrongPast StrongElse StrongMore MotionBase MotionIng MotionPast MotionElse LightBase LightElse
StrongFood MotionFood LightFood VerbPronoun FoodOne FoodMore AmountFood TimeSaid HeatSaid Until Vessel Plan Sequence
First GoesIn Question Negated PastTalk CopulaStart YouCan Greet GreetMore Taste Option Reason Announce Story State
IfWhen Short Long VeryLong Beginning Early Ending NoVerb Core GiveIt Have Habit Tip TheyDo`)

// Observe returns the features of every sentence. stop is called before each sentence. An error of stop ends Observe,
// and is returned.
func Observe(sentences []Sentence, stop func() error) ([]Features, error) {
	out := make([]Features, len(sentences))
	total := 1.0
	if len(sentences) > 0 {
		total = max(1, sentences[len(sentences)-1].End)
	}
	for i := range sentences {
		if err := stop(); err != nil {
			return nil, err
		}
		f := &out[i]
		observe(f, &sentences[i])
		// A long sentence is placed by its middle.
		switch place := (sentences[i].Start + sentences[i].End) / 2 / total; {
		case place < 0.1:
			f[Beginning] = 1
		case place < 0.2:
			f[Early] = 1
		case place > 0.9:
			f[Ending] = 1
		}
	}
	return out, nil
}

func observe(f *Features, s *Sentence) {
	count := 0
	for i := range s.Words {
		if s.Words[i].Kind != words.Mark {
			count++
		}
		f.thing(s, i)
		f.numbers(s, i)
		if action, ok := ActionAt(s, i); ok {
			f.action(s, action)
		}
		f.grammar(s, i)
		f.manner(s, i)
	}
	f.foods(s)
	f[Short] = one(count < 5)
	f[Long] = one(count > 25)
	f[VeryLong] = one(count > 60)
	verbs := 0.0
	for j := StrongBase; j <= LightElse; j++ {
		if j != StrongMore {
			verbs += f[j]
		}
	}
	f[NoVerb] = one(verbs == 0)
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (f *Features) thing(s *Sentence, i int) {
	kind, _ := lexicon.Thing(s.Stems, i)
	switch kind {
	case "vessel":
		f[Vessel] = 1
	case "sequence":
		f[Sequence] = 1
	case "greet":
		f[GreetMore] = f[Greet]
		f[Greet] = 1
	case "taste":
		f[Taste] = 1
	case "option":
		f[Option] = 1
	case "reason":
		f[Reason] = 1
	case "announce":
		f[Announce] = 1
	case "story":
		f[Story] = 1
	case "state":
		f[State] = 1
	}
}

func (f *Features) numbers(s *Sentence, i int) {
	if a, used := measure.ReadAmount(s.Words, i); used > 0 {
		next := i + used
		for next < min(len(s.Words), i+used+3) {
			if n, _ := lexicon.Food(s.Stems, next); n > 0 && (a.Unit.Name != "" || !a.Number.Vague) {
				f[AmountFood] = 1
			}
			next++
		}
	}
	if _, used := measure.ReadDuration(s.Words, i); used > 0 {
		f[TimeSaid] = 1
	}
	if _, used := measure.ReadTemperature(s.Words, i); used > 0 {
		f[HeatSaid] = 1
	}
	if _, used := measure.ReadUntil(s.Words, i); used > 0 {
		f[Until] = 1
	}
}

func (f *Features) action(s *Sentence, a Action) {
	if a.Negated {
		f[Negated] = 1
		return
	}
	index := [...][4]int{
		lexicon.Strong: {StrongBase, StrongIng, StrongPast, StrongElse},
		lexicon.Motion: {MotionBase, MotionIng, MotionPast, MotionElse},
		lexicon.Light:  {LightBase, LightElse, LightElse, LightElse},
	}[a.Force][a.Form]
	if a.Force == lexicon.Strong && f[StrongBase]+f[StrongIng]+f[StrongPast] > 0 {
		f[StrongMore] = 1
	}
	f[index] = 1
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
		if n, _ := lexicon.Food(s.Stems, j); n > 0 {
			f[[...]int{lexicon.Strong: StrongFood, lexicon.Motion: MotionFood, lexicon.Light: LightFood}[a.Force]] = 1
		}
		if pronouns[s.Words[j].Lower] && a.Force >= lexicon.Motion && j <= a.At+2 {
			f[VerbPronoun] = 1
		}
	}
}

func firstWord(s *Sentence) int {
	for i, w := range s.Words {
		if w.Kind == words.Letters && !fillers[w.Lower] {
			return i
		}
	}
	return -1
}

func (f *Features) grammar(s *Sentence, i int) {
	w, next := s.Words[i].Lower, lower(s, i+1)
	switch w {
	case "?":
		f[Question] = 1
	case "want", "need", "got", "have", "ready", "going":
		f[Plan] = max(f[Plan], one(next == "to"))
	case "gonna", "gotta", "'ll", "wanna":
		f[Plan] = 1
	case "let":
		f[Plan] = max(f[Plan], one(next == "'s"))
	case "you":
		f[YouCan] = max(f[YouCan], one(mays[next]))
	}
	f[PastTalk] = max(f[PastTalk], one(past[w]))
	if w == "goes" || w == "go" || w == "going" || w == "went" {
		into := next == "in" || next == "into" || next == "on" || next == "right" && lower(s, i+2) == "in"
		f[GoesIn] = max(f[GoesIn], one(into))
	}
	if i != firstWord(s) {
		return
	}
	switch w {
	case "if":
		f[IfWhen] = 1
	case "there", "here":
		f[CopulaStart] = 1
	case "this", "it", "that", "these", "those", "they":
		f[CopulaStart] = one(isCopula[next])
	}
}

var mays = words.Set("can could may might would")

var (
	pronouns = words.Set("it them this these those everything that all 'em")
	past     = words.Set("was were had did used")
)

var isCopula = words.Set("is 's are 're was will 'll")

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
	next := lower(s, i+1)
	switch s.Words[i].Lower {
	case "give":
		if lower(s, i+2) == "a" {
			f[GiveIt] = 1
		}
	case "have", "got", "need", "here", "using", "take":
		for j := i + 1; j < min(len(s.Words), i+7); j++ {
			if n, _ := lexicon.Food(s.Stems, j); n > 0 {
				f[Have] = 1
			}
		}
	case "usually", "normally", "sometimes", "always", "often", "generally":
		f[Habit] = 1
	case "like", "love", "prefer":
		if next == "to" {
			f[Habit] = 1
		}
	case "make":
		f[Tip] = max(f[Tip], one(next == "sure"))
	case "forget", "worry", "afraid", "remember":
		f[Tip] = 1
	case "they", "he", "she", "people", "somebody", "everybody", "who":
		f[TheyDo] = max(f[TheyDo], one(i == firstWord(s)))
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
		used, dependent := lexicon.Food(s.Stems, i)
		if used > 0 && !dependent {
			n++
		}
		i += max(1, used)
	}
	f[FoodOne] = one(n > 0)
	f[FoodMore] = float64(min(max(n-1, 0), 3)) / 3
}
