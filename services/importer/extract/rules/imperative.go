package rules

import (
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract/internal/lexicon"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

func wordSet(list string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		out[w] = true
	}
	return out
}

var (
	// openers are dropped from the beginning of a step.
	openers = wordSet(`
so and ok okay alright right well now then but next um uh yeah yes guys folks everybody everyone just also hey hi
hello basically actually again`)
	// subjects and helpers stand before the verb of a plan: "i 'm going to".
	subjects = wordSet(`i we you let they`)
	helpers  = wordSet(`
'm 're 's 'll 've am are will is have has going gonna to want wanna need just go ahead like also gotta got would
can could should now then simply please start by be do must then i'd 'd`)
)

// imperative returns the text of a sentence as an order where the words allow it: without openers, and without "I'm going
// to" before a verb. All words that are left stand as they were said.
func imperative(s *talk.Sentence) string {
	ws := s.Words
	from := 0
	for from < len(ws) && (ws[from].Kind == words.Mark || openers[ws[from].Lower]) {
		from++
	}
	if from == len(ws) {
		return ""
	}
	if to := afterPlan(s, from); isBase(s, to) {
		from = to
	}
	return tidy(s.Text[ws[from].Start:])
}

// afterPlan returns the word after "I'm going to" and the like; the word itself when there is nothing of the kind.
func afterPlan(s *talk.Sentence, from int) int {
	w := s.Words[from].Lower
	if !subjects[w] && w != "going" && w != "gonna" {
		return from
	}
	to := from + 1
	for to < len(s.Words) && to-from < 9 && helpers[s.Words[to].Lower] {
		to++
	}
	if to == from+1 && subjects[w] {
		return from // "we add" stays as it is
	}
	return to
}

// isBase reports whether the word at i is a verb of the kitchen in the form of an order.
func isBase(s *talk.Sentence, i int) bool {
	if i >= len(s.Words) || lexicon.Verb(s.Stems[i]) == lexicon.None {
		return false
	}
	return talk.IsBase(s.Words[i].Lower)
}

var tidier = strings.NewReplacer(" ,", ",", " .", ".", " ?", "?", " !", "!", " ;", ";", " n't", "n't", " 's", "'s",
	" 're", "'re", " 've", "'ve", " 'll", "'ll", " 'm", "'m", " 'd ", "'d ", " %", "%", ",,", ",")

// tidy puts marks where they belong in text whose words were taken apart.
func tidy(text string) string {
	return strings.TrimRight(tidier.Replace(strings.Join(strings.Fields(text), " ")), " ,;:-")
}
