package rules

import (
	"strings"
	"unicode"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/lexicon"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// common has the words that distinguish the languages in Latin letters.
var common = map[string]map[string]bool{
	"en": words.Set("the and to of you it is in that this we 're 'm with for going"),
	"de": words.Set("der die das und ist nicht ein eine wir ich mit dann auch noch den jetzt für auf"),
	"es": words.Set("el la los las que de y un una vamos con para es muy por lo ahora se"),
	"fr": words.Set("le la les des et est un une vous on va avec pour je du nous dans c'est"),
	"it": words.Set("il lo gli che di e un una per con è sono del adesso della non poi"),
	"pt": words.Set("o os um uma que de e vamos com para não é do da muito você agora"),
	"nl": words.Set("de het een en is van wij dat niet met voor we dan nog op"),
}

// scripts has the language for which captions use a script most often.
var scripts = []struct {
	table *unicode.RangeTable
	tag   string
}{
	{unicode.Hebrew, "he"},
	{unicode.Arabic, "ar"},
	{unicode.Cyrillic, "ru"},
	{unicode.Greek, "el"},
	{unicode.Hangul, "ko"},
	{unicode.Hiragana, "ja"},
	{unicode.Katakana, "ja"},
	{unicode.Han, "zh"},
	{unicode.Thai, "th"},
	{unicode.Devanagari, "hi"},
}

// sampleWords is the number of words from which the language of a text is determined.
const sampleWords = 2000

// headingLanguages has the names of the languages whose headings are known.
const headingLanguages = "English, German, Spanish, French, Italian, Portuguese, Dutch, Russian, " +
	"Hebrew, Arabic, Chinese, Japanese, Korean or Thai"

// languageName returns the English name of a language.
func languageName(tag string) string {
	if name := display.English.Tags().Name(language.Make(tag)); tag != "" && name != "" {
		return name
	}
	return "a language that is not known"
}

// languageOf returns the tag that the input names, or else the tag of the language that the words suggest, "" if they
// suggest none. foreign reports whether the language is not English, which may be clear even without a tag.
func languageOf(in extract.Input, sentences []talk.Sentence) (tag string, foreign bool) {
	if tag, err := language.Parse(strings.TrimSuffix(in.Language, "-orig")); err == nil && tag != language.Und {
		base, _ := tag.Base()
		return tag.String(), base.String() != "en"
	}
	var ws []words.Word
	for i := range sentences {
		if len(ws) > sampleWords {
			break
		}
		ws = append(ws, sentences[i].Words...)
	}
	if len(ws) < 20 {
		ws = append(ws, words.Split(words.Plain(in.Title+" "+words.Cut(in.Description, 8000)))...)
	}
	tag, english, total := guess(ws)
	return tag, tag != "en" && (tag != "" || total >= surely && english*rarely < total)
}

// A text of at least surely words is not English when fewer than one in rarely is a common English word or a word of
// the kitchen.
const (
	surely = 30
	rarely = 30
)

// guess returns the language that the words suggest, and the numbers of English words and of all words.
func guess(ws []words.Word) (tag string, english, total int) {
	votes := map[string]int{}
	for _, w := range ws {
		if w.Kind != words.Letters {
			continue
		}
		total++
		if stem := []string{words.Stem(w.Lower)}; common["en"][w.Lower] || lexicon.Verb(stem[0]) > lexicon.None || isFoodWord(stem) {
			english++
		}
		for _, s := range scripts {
			if strings.ContainsFunc(w.Lower, func(r rune) bool { return unicode.Is(s.table, r) }) {
				votes[s.tag] += 3
				break
			}
		}
		for tag, list := range common {
			if list[w.Lower] {
				votes[tag]++
			}
		}
	}
	best := ""
	for tag, n := range votes {
		if n > votes[best] || n == votes[best] && (best == "" || tag < best) {
			best = tag
		}
	}
	if votes[best]*10 < total {
		best = ""
	}
	return best, english, total
}

func isFoodWord(stems []string) bool {
	used, _ := lexicon.Food(stems, 0)
	return used > 0
}

var (
	// openers has the words that are dropped from the beginning of a step.
	openers = words.Set(`
so and ok okay alright right well now then but next um uh yeah yes guys folks everybody everyone just also hey hi
hello basically actually again`)
	// subjects and helpers stand before the verb of a plan: "i 'm going to".
	subjects = words.Set(`i we you let they`)
	helpers  = words.Set(`
'm 're 's 'll 've am are will is have has going gonna to want wanna need just go ahead like also gotta got would
can could should now then simply please start by be do must then i'd 'd`)
)

// imperative returns the text of a sentence as an order where the words allow it: without openers, and without "I'm going
// to" before a verb. The other words are unchanged.
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

// afterPlan returns the position after "I'm going to" and the like, or from when there is no such phrase.
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

// tidy removes the spaces before marks in text that was joined from words.
func tidy(text string) string {
	return strings.TrimRight(tidier.Replace(strings.Join(strings.Fields(text), " ")), " ,;:-")
}
