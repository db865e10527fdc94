package words

import (
	_ "embed"
	"iter"
	"slices"
	"strings"
	"sync"
)

//go:embed foods.txt
var foodsText string

//go:embed verbs.txt
var verbsText string

//go:embed things.txt
var thingsText string

//go:embed domains.txt
var domainsText string

// Force is the certainty with which a verb is about cooking.
type Force uint8

// The forces.
const (
	// None is no verb of the kitchen.
	None Force = iota
	// Light is an action not only of cooks: "use", "let".
	Light
	// Motion moves or parts something: "put", "cut".
	Motion
	// Strong is a verb that is about little but cooking: "simmer".
	Strong
)

var (
	verbs  = sync.OnceValue(func() map[string]Force { return parseVerbs(verbsText) })
	foods  = sync.OnceValue(func() phrases { return parsePhrases(foodsText) })
	things = sync.OnceValue(func() phrases { return parsePhrases(thingsText) })

	domains = sync.OnceValues(func() (subjects phrases, doubtful map[string]bool) { return parseDomains(domainsText) })
)

// phrases maps the stem of the first word to the phrases that begin with it.
type phrases map[string][]phrase

type phrase struct {
	stems []string
	kind  string
}

// Lists yields every kind and word of a text, whose kinds end in a colon. A line that begins with // is a remark.
func Lists(text string) iter.Seq2[string, string] {
	return func(yield func(kind, word string) bool) {
		kind := ""
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "//") {
				continue
			}
			if before, after, ok := strings.Cut(line, ":"); ok {
				kind, line = before, after
			}
			for w := range strings.FieldsSeq(line) {
				if !yield(kind, w) {
					return
				}
			}
		}
	}
}

func parseVerbs(text string) map[string]Force {
	forces := map[string]Force{"strong": Strong, "motion": Motion, "light": Light}
	out := map[string]Force{}
	for kind, word := range Lists(text) {
		for form := range strings.SplitSeq(word, "/") {
			stem := Stem(form)
			out[stem] = max(out[stem], forces[kind])
		}
	}
	return out
}

func parsePhrases(text string) phrases {
	out := phrases{}
	for kind, word := range Lists(text) {
		p := phrase{kind: kind, stems: Stems(Split(strings.ReplaceAll(word, "~", " ")))}
		out[p.stems[0]] = append(out[p.stems[0]], p)
	}
	for _, list := range out { // the longest first
		slices.SortStableFunc(list, func(a, b phrase) int { return len(b.stems) - len(a.stems) })
	}
	return out
}

// parseDomains returns the phrases of the subjects, and the stems of the foods with other meanings.
func parseDomains(text string) (subjects phrases, doubtful map[string]bool) {
	subjects, doubtful = parsePhrases(text), map[string]bool{}
	for stem, list := range subjects {
		subjects[stem] = slices.DeleteFunc(list, func(p phrase) bool {
			doubtful[stem] = doubtful[stem] || p.kind == "doubtful"
			return p.kind == "doubtful"
		})
	}
	return subjects, doubtful
}

// Verb returns the force of a stem as a verb of the kitchen.
func Verb(stem string) Force { return verbs()[stem] }

// Food returns the number of stems from i on that name a food, and reports whether the name needs another food before
// it.
func Food(stems []string, i int) (used int, dependent bool) {
	kind, used := foods().at(stems, i)
	return used, kind == "+"
}

// Thing returns the kind of a word or a phrase at i: "vessel", "story", ...; "" for none.
func Thing(stems []string, i int) string {
	kind, _ := things().at(stems, i)
	return kind
}

// Domain returns the subject that a word or a phrase at i belongs to: "kitchen", "computing", ...; "" when none.
func Domain(stems []string, i int) (subject string, used int) {
	subjects, _ := domains()
	return subjects.at(stems, i)
}

// Doubtful reports whether a food is a word with other meanings, such as "port" and "chip".
func Doubtful(food []string) bool {
	_, doubtful := domains()
	return len(food) == 1 && doubtful[food[0]]
}

func (p phrases) at(stems []string, i int) (kind string, used int) {
	if i < 0 || i >= len(stems) {
		return "", 0
	}
	for _, candidate := range p[stems[i]] {
		if len(stems)-i >= len(candidate.stems) && slices.Equal(stems[i:i+len(candidate.stems)], candidate.stems) {
			return candidate.kind, len(candidate.stems)
		}
	}
	return "", 0
}
