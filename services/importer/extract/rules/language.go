package rules

import (
	"strings"
	"unicode"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// common are the words by which languages in Latin letters are told apart.
var common = map[string]map[string]bool{
	"en": wordSet("the and to of you it is in that this we 're 'm with for going"),
	"de": wordSet("der die das und ist nicht ein eine wir ich mit dann auch noch den jetzt für auf"),
	"es": wordSet("el la los las que de y un una vamos con para es muy por lo ahora se"),
	"fr": wordSet("le la les des et est un une vous on va avec pour je du nous dans c'est"),
	"it": wordSet("il lo gli che di e un una per con è sono del adesso della non poi"),
	"pt": wordSet("o os um uma que de e vamos com para não é do da muito você agora"),
	"nl": wordSet("de het een en is van wij dat niet met voor we dan nog op"),
}

// scripts name the language that a script is most often used for in captions.
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

// sampleWords is how much text is looked at to tell its language.
const sampleWords = 2000

// languageOf returns the tag that the input names, or that of the language that the words look like; "" when neither tells.
func languageOf(in extract.Input, sentences []talk.Sentence) string {
	if tag, err := language.Parse(strings.TrimSuffix(in.Language, "-orig")); err == nil && tag != language.Und {
		return tag.String()
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
	return guess(ws)
}

func guess(ws []words.Word) string {
	votes, total := map[string]int{}, 0
	for _, w := range ws {
		if w.Kind != words.Letters {
			continue
		}
		total++
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
	if votes[best]*12 < total {
		return ""
	}
	return best
}
