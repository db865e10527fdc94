// Package talk cuts a timed transcript into sentences, and finds the sentences that tell an action of a cook.
package talk

import (
	"context"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// Sentence is a sentence of a transcript with its time.
type Sentence struct {
	// Start is the start of the sentence's first segment, and End the end of its last segment, in seconds.
	Start, End float64
	Text       string
	Words      []words.Word
	Stems      []string
}

// Bounds.
const (
	// maxWords is the length from which a sentence is cut between two segments, and maxRun the length at which it is cut
	// anywhere.
	maxWords = 40
	maxRun   = 300
	// pause is the silence in seconds that ends a sentence in a transcript without punctuation.
	pause = 1.5
)

// Ended returns an error that wraps the cause of the end of a context that has ended. The functions of this package that take a
// context ask before each sentence.
func Ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("extract: %w", context.Cause(ctx))
	}
	return nil
}

// Cut joins the segments of a transcript and cuts them at the ends of sentences. A transcript without punctuation, as speech
// recognition writes it, is cut at pauses and before the words with which speakers start over.
func Cut(ctx context.Context, segments []caption.Segment) ([]Sentence, error) {
	c := cutter{plain: !punctuated(segments)}
	for _, s := range segments {
		if err := Ended(ctx); err != nil {
			return nil, err
		}
		c.segment(s)
	}
	c.flush()
	return c.out, nil
}

// punctuated reports whether the segments end in marks about as often as sentences do.
func punctuated(segments []caption.Segment) bool {
	ends, total := 0, 0
	for _, s := range segments {
		total += strings.Count(s.Text, " ") + 1
		ends += strings.Count(s.Text, ". ") + strings.Count(s.Text, "? ") + strings.Count(s.Text, "! ")
		if strings.HasSuffix(s.Text, ".") || strings.HasSuffix(s.Text, "?") || strings.HasSuffix(s.Text, "!") {
			ends++
		}
	}
	return ends*40 >= total
}

type cutter struct {
	plain bool // without punctuation
	out   []Sentence
	text  strings.Builder
	count int
	last  string // the last word of the previous segment
	start float64
	end   float64
}

func (c *cutter) segment(s caption.Segment) {
	text := strings.TrimSpace(words.Plain(s.Text))
	ws := words.Split(text)
	if len(ws) == 0 {
		return
	}
	if c.count > 0 && (c.count >= maxWords || c.plain && s.Start.Seconds()-c.end >= pause) {
		c.flush()
	}
	from, word := 0, 0
	for i, w := range ws {
		if !c.cutsBefore(ws, i, word) {
			continue
		}
		c.add(s, text[from:w.Start], i-word)
		c.flush()
		from, word = w.Start, i
	}
	c.add(s, text[from:], len(ws)-word)
	c.last = ws[len(ws)-1].Lower
	if !c.plain && isEnd(c.last) || c.count >= maxRun {
		c.flush()
	}
}

// cutsBefore reports whether a sentence ends before word i of a segment. The words before from belong to an earlier
// sentence.
func (c *cutter) cutsBefore(ws []words.Word, i, from int) bool {
	if i-from >= maxRun {
		return true
	}
	if !c.plain {
		return i > 0 && isEnd(ws[i-1].Lower) && !isEnd(ws[i].Lower) && ws[i].Start > ws[i-1].End
	}
	return c.count+i-from >= 5 && (beginsAnew(ws, i, c.before(ws, i)) || isOrder(ws, i, c.before(ws, i)))
}

func isEnd(w string) bool { return w == "." || w == "?" || w == "!" || w == "。" }

// beginsAnew reports whether speakers begin a sentence with the word at i.
func beginsAnew(ws []words.Word, i int, before string) bool {
	next := ""
	if i+1 < len(ws) {
		next = ws[i+1].Lower
	}
	switch ws[i].Lower {
	case "okay", "alright", "now", "next", "finally":
		return true
	case "so":
		switch next {
		case "i", "we", "you", "now", "the", "let", "this", "here", "it", "there", "what", "first", "then", "go", "just", "once", "that":
			return true
		}
	case "and":
		switch next {
		case "then", "now", "i", "we", "you", "once", "next", "so":
			return true
		}
	case "then":
		return before != "and" && before != "so" && before != "more"
	case "let":
		return next == "'s" && before != "so" && before != "and"
	case "thank", "thanks":
		return true
	case "i", "we":
		switch next {
		case "love", "like", "think", "hope", "always", "usually":
			return !joins[before]
		case "'m", "'re", "'ll", "'ve":
			return !joins[before]
		}
	}
	return false
}

// joins has the words after which a clause does not begin a sentence.
var joins = words.Set("so and then that what which because if when as but while where until once how why or cause than")

// before returns the word before word i, which may be in the previous segment.
func (c *cutter) before(ws []words.Word, i int) string {
	if i == 0 {
		return c.last
	}
	return ws[i-1].Lower
}

// isOrder reports whether the word at i is a verb of the kitchen that begins an order: "season it", "chop the onions". It is
// false after a word that may precede a noun as well as a verb.
func isOrder(ws []words.Word, i int, before string) bool {
	if i+1 >= len(ws) || ws[i].Kind != words.Letters || !objects[ws[i+1].Lower] {
		return false
	}
	if leads[before] || nouns[before] || joins[before] || subjects[before] || strings.HasSuffix(before, "ly") {
		return false
	}
	w := ws[i].Lower
	return (words.Verb(words.Stem(w)) >= words.Motion || w == "cook" || w == "let" || w == "serve") && IsBase(w)
}

var (
	objects  = words.Set("it them this these those the some a an your everything all my our in two three one")
	subjects = words.Set("i you we they he she it this that who 've have has had 's is are was were not n't never 're 'm be been")
)

func (c *cutter) add(s caption.Segment, text string, count int) {
	text = strings.TrimSpace(text)
	if text == "" {
		return
	}
	if c.text.Len() == 0 {
		c.start = s.Start.Seconds()
	} else {
		c.text.WriteByte(' ')
	}
	c.text.WriteString(text)
	c.count += count
	c.end = (s.Start + s.Dur).Seconds()
}

func (c *cutter) flush() {
	text := c.text.String()
	c.text.Reset()
	c.count = 0
	if text == "" {
		return
	}
	ws := measure.Split(text)
	c.out = append(c.out, Sentence{Start: c.start, End: max(c.start, c.end), Text: text, Words: ws, Stems: words.Stems(ws)})
}

// Form is the form of a verb in its sentence.
type Form uint8

// The forms.
const (
	// FormBase is an order or a plan.
	FormBase Form = iota
	// FormIng is an action in progress.
	FormIng
	// FormPast is a past action, or a state.
	FormPast
	// FormElse is a noun, an adjective, or an action of other people.
	FormElse
)

// Action is a verb of the kitchen in a sentence.
type Action struct {
	At      int
	Force   words.Force
	Form    Form
	Negated bool
}

var (
	// fillers has words before the first word that matters in a sentence.
	fillers = words.Set(`
so and ok okay alright now then next first just well also but right all um uh yeah finally again simply gently
carefully quickly lightly slowly go ahead please basically actually really or once`)
	// leads has the words after which a base form is an order or a plan.
	leads = words.Set(`
to and then just 'll will gonna let 's please you we i now also gently carefully quickly lightly finely roughly
slowly can could should must simply next or first finally them it us always only go ahead gotta so ok okay lets do
want wanna help`)
	// nouns has the words after which a form is no verb.
	nouns = words.Set(`
the a an my your our some more of this that these those his her their with for in no any little bit good nice fresh
every each much many hot cold dry chopped diced sliced`)
)

// ActionAt returns the action at word i, if the word is a verb of the kitchen.
func ActionAt(s *Sentence, i int) (Action, bool) {
	w := s.Words[i]
	if w.Kind != words.Letters {
		return Action{}, false
	}
	force := words.Verb(s.Stems[i])
	if force == words.None {
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

// IsBase reports whether a word is not a form in -ing or -ed.
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
