package talk

import (
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract/internal/lexicon"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// Form is how a verb stands in its sentence.
type Form uint8

// The forms.
const (
	// FormBase is an order or a plan.
	FormBase Form = iota
	// FormIng is what is being done.
	FormIng
	// FormPast is what was done, or the state something is in.
	FormPast
	// FormElse is a noun or an adjective, or a verb that others do.
	FormElse
)

// Action is a verb of the kitchen in a sentence.
type Action struct {
	At      int
	Force   lexicon.Force
	Form    Form
	Negated bool
}

func wordSet(list string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		out[w] = true
	}
	return out
}

var (
	// fillers may stand before the first word of a sentence that says something.
	fillers = wordSet(`
so and ok okay alright now then next first just well also but right all um uh yeah finally again simply gently
carefully quickly lightly slowly go ahead please basically actually really or once`)
	// leads are the words after which a base form is an order or a plan.
	leads = wordSet(`
to and then just 'll will gonna let 's please you we i now also gently carefully quickly lightly finely roughly
slowly can could should must simply next or first finally them it us always only go ahead gotta so ok okay lets do
want wanna help`)
	// nouns are the words after which a form is no verb.
	nouns = wordSet(`
the a an my your our some more of this that these those his her their with for in no any little bit good nice fresh
every each much many hot cold dry chopped diced sliced`)
)

// ActionAt returns the verb of the kitchen at a word.
func ActionAt(s *Sentence, i int) (Action, bool) {
	w := s.Words[i]
	if w.Kind != words.Letters {
		return Action{}, false
	}
	force := lexicon.Verb(s.Stems[i])
	if force == lexicon.None {
		return Action{}, false
	}
	a := Action{At: i, Force: force, Form: form(s, i)}
	if a.Form == FormBase {
		for j := max(0, i-3); j < i; j++ {
			switch s.Words[j].Lower {
			case "n't", "not", "never", "no":
				a.Negated = true
			}
		}
	}
	return a, true
}

func form(s *Sentence, i int) Form {
	w := s.Words[i].Lower
	before := previous(s, i)
	switch {
	case nouns[before]:
		return FormElse
	case isIng(w):
		return FormIng
	case isPast(w):
		return FormPast
	case before == "" || leads[before]:
		if strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
			return FormElse
		}
		return FormBase
	}
	return FormElse
}

// IsBase reports whether a word is no form in -ing or -ed.
func IsBase(w string) bool { return !isIng(w) && !isPast(w) }

func isIng(w string) bool { return strings.HasSuffix(w, "ing") && len(w) > 5 } // not "bring"

func isPast(w string) bool {
	return strings.HasSuffix(w, "ed") && len(w) > 4 && w != "shred" && !strings.HasSuffix(w, "eed")
}

// previous returns the word before i without fillers; "" at the beginning of a clause.
func previous(s *Sentence, i int) string {
	for j := i - 1; j >= 0; j-- {
		w := s.Words[j]
		if w.Kind == words.Mark {
			return ""
		}
		if j > 0 && fillers[w.Lower] && !leads[w.Lower] {
			continue
		}
		return w.Lower
	}
	return ""
}
