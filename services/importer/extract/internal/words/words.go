// Package words takes text apart into words, numbers and marks, and finds the stems of words. It holds the words
// of the kitchen: foods, actions, vessels, and other words of cooks. The lists are general knowledge of the language and are fitted
// to nothing.
package words

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/unicode/norm"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

// Word is a word, a number or a mark of a text.
type Word struct {
	// Text is the word as written, Lower in lower case with plain apostrophes.
	Text, Lower string
	// Start and End are the positions of the word in the text, in bytes.
	Start, End int
	// Kind is the kind of the word.
	Kind Kind
	// Reading is what the word means where its language decides: a number in digits, or an English word; usually empty.
	Reading string
}

// Kind is the kind of characters of a word: letters, digits or a mark.
type Kind uint8

// The kinds.
const (
	// Letters is a word, with apostrophes inside.
	Letters Kind = iota
	// Digits is a number in digits with a point, a comma, an apostrophe or a slash inside, or one sign such as ½.
	Digits
	// Mark is any other single character.
	Mark
)

// endings are split off their words, so that "don't", "do n't" and "do not" have the same first word.
var endings = []string{"n't", "'s", "'re", "'ve", "'ll", "'m", "'d"}

// Split returns the words of a text. White space separates and is dropped; a number is split from the letters after it.
// The positions are those in Plain(text).
func Split(text string) []Word {
	out := make([]Word, 0, len(text)/5+1)
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		start := i
		kind := Mark
		switch {
		case unicode.IsSpace(r):
			i += size
			continue
		case isFraction(r):
			kind, i = Digits, i+size
		case unicode.IsDigit(r):
			kind, i = Digits, digitsEnd(text, i)
		case isLetter(r):
			kind, i = Letters, lettersEnd(text, i)
		case r == '\'' && i+1 < len(text) && endingAt(text[i:]) > 0:
			kind, i = Letters, i+endingAt(text[i:])
		default:
			i += size
		}
		out = append(out, Word{Text: text[start:i], Lower: strings.ToLower(text[start:i]), Start: start, End: i, Kind: kind})
		if kind == Letters {
			out = splitEnding(out)
		}
	}
	return out
}

// Plain returns the text in the form that Split reads: composed characters, straight apostrophes, ordinary spaces and
// dashes, no invisible characters.
func Plain(text string) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "")
	}
	if strings.ContainsAny(text, "⁄/∕") {
		text = raised.ReplaceAllStringFunc(text, func(s string) string { return " " + norm.NFKC.String(s) })
	}
	return norm.NFC.String(strings.Map(func(r rune) rune {
		switch r {
		case '’', '‘', 'ʼ', '`', '´', '׳', '٬':
			return '\''
		case '“', '”', '„', '«', '»', '״':
			return '"'
		case '–', '—', '‐', '‑', '−', '־':
			return '-'
		case 'º':
			return '°'
		case '⁄', '∕':
			return '/'
		case '〜', '∼':
			return '~'
		case '\n', '\t':
			return r
		case '\u00a0', '\u202f':
			return ' '
		}
		if r >= '٠' {
			r = plainForm(r)
		}
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) {
			return -1
		}
		return r
	}, text))
}

// raised matches a fraction of small digits, which follow a whole number without a space.
var raised = lazyregexp.New(`[⁰¹²³⁴⁵⁶⁷⁸⁹]+[⁄/∕][₀₁₂₃₄₅₆₇₈₉]+`)

// zeros has the digits 0 of the scripts whose digits Plain replaces by ASCII digits.
var zeros = []rune{'٠', '۰', '०', '০', '๐'}

// plainForm returns the ASCII form of a character of full width and of a digit of another script.
func plainForm(r rune) rune {
	switch {
	case r >= '！' && r <= '～':
		return r - '！' + '!'
	case r == '　':
		return ' '
	case r == '٫':
		return '.'
	}
	for _, zero := range zeros {
		if r >= zero && r <= zero+9 {
			return r - zero + '0'
		}
	}
	return r
}

func isFraction(r rune) bool { _, ok := Fraction(r); return ok }

func isLetter(r rune) bool { return unicode.IsLetter(r) || unicode.IsMark(r) }

func lettersEnd(text string, i int) int {
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == '\'' {
			next, _ := utf8.DecodeRuneInString(text[i+size:])
			if !unicode.IsLetter(next) {
				return i
			}
		} else if !isLetter(r) {
			return i
		}
		i += size
	}
	return i
}

// digitsEnd returns the end of a number. A point, a comma or a slash belongs to it between two digits, the slash once.
func digitsEnd(text string, i int) int {
	slash := false
	for i < len(text) {
		r, size := utf8.DecodeRuneInString(text[i:])
		next, _ := utf8.DecodeRuneInString(text[i+size:])
		switch {
		case unicode.IsDigit(r):
		case (r == '.' || r == ',') && unicode.IsDigit(next):
		case r == '\'' && thousand.MatchString(text[i+size:]):
		case r == '/' && !slash && unicode.IsDigit(next):
			slash = true
		default:
			return i
		}
		i += size
	}
	return i
}

// thousand matches the three digits after an apostrophe that groups them.
var thousand = lazyregexp.New(`^\d{3}(?:\D|$)`)

func endingAt(text string) int {
	for _, e := range endings[1:] {
		if len(text) >= len(e) && strings.EqualFold(text[:len(e)], e) {
			return len(e)
		}
	}
	return 0
}

func splitEnding(out []Word) []Word {
	w := out[len(out)-1]
	for _, e := range endings {
		cut := len(w.Text) - len(e)
		if cut <= 0 || len(w.Lower) != len(w.Text) || !strings.HasSuffix(w.Lower, e) {
			continue
		}
		first, second := w, w
		first.Text, first.Lower, first.End = w.Text[:cut], w.Lower[:cut], w.Start+cut
		second.Text, second.Lower, second.Start = w.Text[cut:], w.Lower[cut:], w.Start+cut
		return append(out[:len(out)-1], first, second)
	}
	return out
}

// Stem returns the stem of an English word in lower case, by the Porter2 rules. Words of other scripts are their own stems.
func Stem(lower string) string {
	if strings.ContainsFunc(lower, func(r rune) bool { return r > unicode.MaxLatin1 }) || len(lower) > 40 {
		return lower
	}
	stem := english.Stem(lower, true)
	// The library cuts one letter too many from "adding" and "egged". Newer versions of the rules do not.
	if len(stem) == 2 && len(lower) > 3 && lower[1] == lower[2] && strings.HasPrefix(lower, stem) {
		stem = lower[:3]
	}
	return stem
}

// Stems returns the stems of all words. A number or a mark is its own stem.
func Stems(ws []Word) []string {
	out := make([]string, len(ws))
	for i, w := range ws {
		out[i] = w.Lower
		if w.Kind == Letters {
			out[i] = Stem(w.Lower)
		}
	}
	return out
}

// Fraction returns the value of a sign such as ½.
func Fraction(r rune) (float64, bool) {
	i := slices.Index(fractionSigns, r)
	if i < 0 {
		return 0, false
	}
	return fractionValues[i], true
}

var (
	fractionSigns  = []rune("½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒")
	fractionValues = []float64{
		1. / 2, 1. / 3, 2. / 3, 1. / 4, 3. / 4, 1. / 5, 2. / 5, 3. / 5, 4. / 5, 1. / 6, 5. / 6, 1. / 8, 3. / 8, 5. / 8, 7. / 8,
		1. / 7, 1. / 9, 1. / 10,
	}
)

// Join returns words as they stand in their text, with single spaces.
func Join(ws []Word) string {
	var b strings.Builder
	for i, w := range ws {
		if i > 0 && w.Start > ws[i-1].End {
			b.WriteByte(' ')
		}
		b.WriteString(w.Text)
	}
	return b.String()
}

// Scripts has the language for which each script is used most often, before the script.
var Scripts = strings.Fields(`ja=Hiragana ja=Katakana ko=Hangul zh=Han ru=Cyrillic he=Hebrew ar=Arabic th=Thai el=Greek hi=Devanagari`)

// ScriptOf returns the language of the first of the scripts in which a text has a letter, "" for none.
func ScriptOf(text string) string {
	for _, s := range Scripts {
		tag, script, _ := strings.Cut(s, "=")
		if strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Scripts[script], r) }) {
			return tag
		}
	}
	return ""
}

// Set returns the words of a list with spaces between them.
func Set(list string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		out[w] = true
	}
	return out
}

var patterns = lazyregexp.New(`(?i)` + strings.Join([]string{
	`\b(ignore|disregard|forget|override|bypass)\b.{0,40}\b(instructions?|prompts?|rules|guidelines|directions|(above|before) text)\b`,
	`\b(ignore|disregard|forget)\b.{0,20}\b(everything|anything|all|what)\b.{0,20}\b(above|before|previous|earlier|prior)\b`,
	`\b(system|developer|hidden) (prompt|message|instructions?)\b`,
	`\b(you are|you're|act as|pretend to be) (now )?(an? )?(ai|a\.i\.|assistant|chatbot|language model|llm|gpt)\b`,
	`\b(as|dear|hey|attention|note to) (an? |the )?(ai|a\.i\.|language model|llm|assistant|chatgpt|gpt|claude|gemini)\b`,
	`\b(ai|a\.i\.|llm|assistant|chatgpt|claude|gemini|model|bot|extractor)s?( model)?\b` +
		`.{0,20}\b(must|should|shall|please|will now|are instructed)\b`,
	`\b(set|change|make|rename|replace)\b.{0,12}\b(recipe('s)? )?(title|name of the recipe|recipe name|description field|json)\b` +
		`.{0,10}\b(to|with|as)\b`,
	`\b(add|put|insert|write|include|output|print|return|respond|reply|answer)\b.{0,30}` +
		`\b(to|in|into|as|with|only|the) (the )?(json|output|prompt)\b`,
	`\brespond (only )?with\b`,
	`<\|?(im_start|im_end|system|endoftext)\|?>|\[/?INST\]|###\s*(system|instruction)`,
	`(ignoriere|vergiss)\b.{0,40}\b(anweisungen|regeln)`,
	`ignor(a|e|ez)\b.{0,40}\b(instrucciones|instructions|istruzioni|instruções)`,
	`(игнорируй|забудь)\S*\s.{0,40}инструкци`,
	`התעלם.{0,40}הוראות`,
}, "|"))

// hints are parts of words, one of which is in every match of a pattern. Looking for them takes a tenth of the time that the
// patterns take. A letter that folds to an s is a hint as well.
var hints = strings.Fields(`ignor disregard forget override bypass system developer hidden ai a.i. assistant chatbot model llm gpt
claude gemini bot extractor title name description json output prompt respond im_ endoftext inst vergiss игнорируй забудь התעלם ſ`)

// longest bounds the text that is examined; a sentence is far shorter.
const longest = 4000

// Speaks reports whether a sentence or a line gives instructions to a model. It looks for the usual phrases only, so
// nothing may depend on it alone.
func Speaks(text string) bool {
	text = text[:min(len(text), longest)]
	lower := strings.ToLower(text)
	return slices.ContainsFunc(hints, func(hint string) bool { return strings.Contains(lower, hint) }) && patterns.MatchString(text)
}
