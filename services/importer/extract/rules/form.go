package rules

import (
	_ "embed"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// Kinds of headings in a description.
const (
	noHeading          = ""
	ingredientsHeading = "ingredients"
	methodHeading      = "method"
	notesHeading       = "notes"
	otherHeading       = "other"
)

//go:embed headings.txt
var headingsText string

// phrases has the words of written recipes by their kind, and the number of words of the longest that begins with a word.
var phrases = sync.OnceValues(func() (all map[string]bool, longest map[string]int) {
	all, longest = map[string]bool{}, map[string]int{}
	for kind, phrase := range words.Lists(headingsText) {
		ws := words.Split(strings.ReplaceAll(phrase, "~", " "))
		all[key(kind, ws)] = true
		longest[key(kind, ws[:1])] = max(longest[key(kind, ws[:1])], len(ws))
	}
	return all, longest
})

func key(kind string, ws []words.Word) string {
	parts := append(make([]string, 0, 1+len(ws)), kind)
	for i := range ws {
		parts = append(parts, ws[i].Lower)
	}
	return strings.Join(parts, " ")
}

// said returns the number of words at i that are a phrase of a kind.
func said(kind string, ws []words.Word, i int) int {
	if i >= len(ws) {
		return 0
	}
	all, longest := phrases()
	n := min(longest[kind+" "+ws[i].Lower], len(ws)-i)
	for n > 0 && !all[key(kind, ws[i:i+n])] {
		n--
	}
	return n
}

// anyOf returns a pattern for the words of a kind, or for those of them in scripts that write no spaces.
func anyOf(kind string, unspaced bool) string {
	var list []string
	for k, word := range words.Lists(headingsText) {
		if k == kind && (!unspaced || strings.ContainsFunc(word, isUnspaced)) {
			list = append(list, regexp.QuoteMeta(word))
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return len(b) - len(a) })
	return `(?:` + strings.Join(list, "|") + `)`
}

func isUnspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai)
}

// heading returns the kind of heading of a line, and what follows on the same line: "2 eggs" of "Ingredients: 2 eggs". Marked
// are lines that are headings by their form.
func heading(line string, marked bool) (kind, rest string) {
	plain := strings.TrimLeftFunc(words.Plain(line), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	head, rest, colon := strings.Cut(plain, ":")
	rest = strings.TrimSpace(rest)
	ws := letters(words.Split(head))
	if isDigit(plain) || len(ws) == 0 || len(ws) > 7 || rest != "" && len(ws) > 4 {
		return noHeading, ""
	}
	marked = marked || colon
	sentence := !marked && isSentence(plain, ws)
	for i := range ws {
		for _, kind := range []string{ingredientsHeading, methodHeading, notesHeading, otherHeading} {
			n := said(kind, ws, i)
			if n == len(ws) || n > 0 && !sentence && (marked && (i == 0 || rest == "") || !marked && heads(kind, i, n, len(ws))) {
				return kind, rest
			}
		}
	}
	return noHeading, ""
}

// heads reports whether n words at i, of count words without a mark of a heading, are one: the first, or the last of a few.
func heads(kind string, i, n, count int) bool {
	if count > 3 {
		return i == 0 && (kind == ingredientsHeading || kind == otherHeading)
	}
	return i == 0 || i+n == count
}

func isSentence(text string, ws []words.Word) bool {
	return isEnd(text) || isVerb(ws[0]) || isVerb(ws[len(ws)-1])
}

func letters(ws []words.Word) []words.Word {
	return slices.DeleteFunc(slices.Clone(ws), func(w words.Word) bool { return w.Kind != words.Letters })
}

var unspacedVerbs = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(anyOf("verb", true)) })

// isVerb reports whether a word is an action of a cook in one of the languages.
func isVerb(w words.Word) bool {
	return said("verb", []words.Word{w}, 0) > 0 || unspacedVerbs().MatchString(w.Text)
}

// isEnd reports whether a text ends as sentences do.
func isEnd(text string) bool {
	last, _ := utf8.DecodeLastRuneInString(strings.TrimRight(text, `"')] `))
	return strings.ContainsRune(".!?。…।", last)
}

// isDigit reports whether a text begins with a digit.
func isDigit(text string) bool { return text != "" && text[0] >= '0' && text[0] <= '9' }

func isCapitals(text string) bool {
	return utf8.RuneCountInString(text) > 2 && strings.ToUpper(text) == text && strings.ToLower(text) != text
}

var (
	tags      = lazyregexp.New(`(?i)</?(?:strong|b)\b[^>]*>`)
	headTags  = lazyregexp.New(`(?i)<h[1-6]\b[^>]*>`)
	breakTags = lazyregexp.New(`(?i)</?(?:br|p|div|li|ul|ol|tr|h[1-6])\b[^>]*>`)

	atx      = lazyregexp.New(`^(#{1,6})\s+(.*?)[\s#]*$|^(##+)(\S.*?)[\s#]*$`)
	framed   = lazyregexp.New(`^(?:\*\*|__|[-=~]{2,})\s*([^*]+?)\s*(?:\*\*|__|[-=~]{2,})\s*(:?)$`) // in bold, or between dashes
	emphasis = lazyregexp.New(`(^|[^*])\*([^*\s](?:[^*]*[^*\s])?)\*([^*]|$)`)
	bullet   = lazyregexp.New(`^[\s\p{So}–—•*·●▪◦‣>+~∙‧・※»→⁃-]+(?:\[[ xX]?\]\s*)?|^\[[ xX]?\]\s*`)
	sender   = lazyregexp.New(`^\[?\d{1,4}[./-]\d{1,2}[./-]\d{2,4},? \d{1,2}:\d{2}[^\]:]{0,9}(?::\d{2}[^\]:]{0,4})?(?:\]| -) [^:]{1,40}: `)
	ruled    = lazyregexp.New(`^[\s|:=_*#~.+-]*$`)
	numbered = lazyregexp.New(`^[\[(]?(\d{1,2})(?:(?:\s*[.):、\]\x{20e3}]+-?|\s+-\s)(\P{N}.*|$)|` + // not "3- to 4-pound"
		`(?:-|/|[°ºª]\.?)\s+([^\p{Ll}\p{N}\s][^\s].*)|$)`)
)

var (
	labelled = sync.OnceValue(func() *regexp.Regexp {
		step, stepNumber := anyOf("step", false), `(?:\d{1,2}|`+anyOf("number", false)+`)`
		return regexp.MustCompile(`(?i)^[(\[]?(?:` + step + `\s*(?:n[°o.]\s*)?` + stepNumber +
			`(?:\s*(?:/|` + anyOf("of", false) + `)\s*\d{1,2})?|` + stepNumber + `\s*(?:[.ªºa°]|-?[aey]|ère|ème|e|-?й)?\s*` +
			step + `|第\s*[\d一二三四五六七八九十]{1,3}\s*步)(?:[\])\s.:、|/-]+|$)`)
	})

	// marks matches what may mark a step within a line.
	marks = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:^|[\s.!?。])(?:` + anyOf("step", false) + `\s*)?(\d{1,2}\s*[.):]|[①-⑳])\s*`)
	})
)

// line is a line of a written text.
type line struct {
	text   string // without the marks of headings and lists
	ws     []words.Word
	length int // in words, or what is about as long in scripts without spaces
	level  int // of a heading: that of Markdown, or byForm; 0 for none
	number int // of an entry, 0 for none

	kind, rest string // of a heading, as heading returns them
	facts      facts

	blank  bool // an empty line precedes it
	item   bool // it begins an entry of a list
	step   bool // it begins with "Step 1" or the like
	amount bool // it begins or ends with an amount
	acts   bool // it begins or ends with an action of a cook
	ends   bool // it ends as sentences do
}

// byForm is the level of headings in bold or capitals.
const byForm = 7

func newLine(text string) line {
	var l line
	text = emphasis.ReplaceAllString(strings.TrimSpace(words.Plain(text)), "$1$2$3")
	if m := atx.FindStringSubmatch(text); m != nil {
		l.level, text = len(m[1]+m[3]), m[2]+m[4]
	}
	if strings.HasPrefix(text, "|") {
		text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '|' }), " ")
	}
	for range 2 { // "1. **Dough**" and "**1. Dough**"
		if m := framed.FindStringSubmatch(text); m != nil {
			l.level, text = byForm, m[1]+m[2]
		}
		if plain := strings.ReplaceAll(text, "**", ""); labelled().MatchString(plain) {
			text = plain // "**Step 1.** Mix."
		}
		text = l.mark(text)
	}
	if l.item || l.step {
		l.step, l.level = l.step || l.number > 0 && l.level == byForm, 0 // "1. **Dough**" is followed by its text
	}
	l.set(strings.Trim(strings.NewReplacer("**", "", "__", "").Replace(text), "*_ \t"))
	return l
}

// Line reads a line of a written list or method. It returns the text without the marks of lists, steps and Markdown, and
// reports whether it is the heading of a part: "For the dough:", "## For the dough". A label alone, such as "Step 2" or
// "Method", has no text.
func Line(line string) (text string, isHeading bool) {
	if !strings.HasSuffix(strings.TrimRight(line, ": \t\r\n"), "**") { // "**Step 2:** Bake."
		line = strings.ReplaceAll(line, "**", "")
	}
	l := newLine(line)
	ws := slices.DeleteFunc(slices.Clone(l.ws), isMark)
	if n := said("step", ws, 0); len(ws) == 0 || said("method", ws, 0) == len(ws) || n > 0 && len(ws) == n+1 {
		return "", false
	}
	text, colon := strings.CutSuffix(l.text, ":")
	plain := len(text) <= 100 && !strings.ContainsFunc(text, unicode.IsDigit) && !l.ends
	isHeading = l.level > 0 && l.level < byForm || plain && (colon || l.level > 0)
	if !isHeading {
		text = l.text
	}
	return text, isHeading
}

// Numbered divides a line before each of the numbers 1, 2, 3 and so on that mark its steps.
func Numbered(line string) []string {
	line = strings.TrimSpace(words.Plain(line))
	var out []string
	begin, next := 0, 1
	for _, m := range marks().FindAllStringSubmatchIndex(line, -1) {
		number := strings.TrimRight(norm.NFKC.String(line[m[2]:m[3]]), ".): \t")
		if after, _ := utf8.DecodeRuneInString(line[m[1]:]); number != strconv.Itoa(next) || unicode.IsDigit(after) {
			continue
		}
		next++
		if m[0] > begin {
			_, size := utf8.DecodeRuneInString(line[m[0]:]) // the end of a sentence
			out, begin = append(out, strings.TrimSpace(line[begin:m[0]+size])), m[0]+size
		}
	}
	if next == 2 {
		return []string{line}
	}
	return append(out, strings.TrimSpace(line[begin:]))
}

// set sets the text, and what is seen from it.
func (l *line) set(text string) {
	l.text, l.ws, l.ends, l.length = text, words.Split(text), isEnd(text), len(strings.Fields(text))
	unspaced := strings.ContainsFunc(text, isUnspaced)
	if unspaced {
		l.length = utf8.RuneCountInString(text) / 2
	}
	begins := false // with an action
	if ws := slices.DeleteFunc(slices.Clone(l.ws), isMark); len(ws) > 1 || unspaced && len(ws) > 0 {
		begins = isVerb(ws[0]) || words.Verb(words.Stem(ws[0].Lower)) >= words.Motion && !isFood(ws[0].Text)
		l.acts = begins || isVerb(ws[len(ws)-1])
	}
	for i := 1; l.ends && i < len(l.ws); i++ { // "The evening before, mix everything."
		l.acts = l.acts || l.ws[i-1].Text == "," && isVerb(l.ws[i])
	}
	l.amount = l.hasAmount()
	if !l.amount && !begins && l.length <= 6 {
		if _, remark := withoutPhrase(text); remark != "" && !strings.Contains(strings.TrimSuffix(text, "."), ". ") {
			l.amount, l.acts, l.ends = true, false, false // "cacao q.b.", "lime, to serve"
		}
	}
}

// hasAmount reports whether a line begins or ends with an amount, and is no time or temperature.
func (l *line) hasAmount() bool {
	ws := measure.Split(l.text)
	if _, timed := measure.ReadDuration(ws, 0); timed > 0 || len(ws) == 0 {
		return false
	}
	for i := range ws {
		if _, degrees := measure.ReadTemperature(ws, i); degrees > 0 {
			return false
		}
	}
	a, used := measure.ReadAmount(ws, 0)
	_, unit := measure.ReadUnit(ws, 0)
	switch {
	case used > 0 && (ws[0].Kind == words.Digits || a.Unit.Name != "" || !l.acts), !l.acts && endsInAmount(l.text):
		return true
	case unit == 0 || unit == len(ws):
		return false
	}
	return measure.Reads(ws, unit, "of") || !isVerb(ws[0]) && isFood(l.text[ws[unit].Start:]) // "pinch of salt", "pinch salt"
}

func isMark(w words.Word) bool { return w.Kind == words.Mark }

// isFor reports whether a line begins as the headings of parts do: "For the dough".
func (l *line) isFor() bool { return said("for", l.ws, 0) > 0 }

// isWish reports whether a line is only a wish, such as "Enjoy!".
func (l *line) isWish() bool {
	n := said("wish", l.ws, 0)
	return n > 0 && n == len(letters(l.ws))
}

// mark takes the mark of an entry from the beginning of a text.
func (l *line) mark(text string) string {
	if mark := bullet.FindString(text); mark != "" && !strings.HasPrefix(text, "**") {
		l.item = l.item || l.level == 0
		text = text[len(mark):]
	}
	label, m := labelled().FindString(text), numbered.FindStringSubmatch(text)
	switch r, size := utf8.DecodeRuneInString(text); {
	case label != "":
		l.step = true
		text = text[len(label):]
	case len(m) > 0:
		l.item = true
		l.number, _ = strconv.Atoi(m[1])
		text = m[2] + m[3]
	case r >= '①' && r <= '⑳':
		l.item, l.number = true, int(r-'①')+1
		text = text[size:]
	}
	return strings.TrimSpace(text)
}

// inlined returns the steps that are numbered within a line, such as "1. Mix. 2. Bake".
func inlined(l *line) []string {
	out, rest := []string{}, l.text
	for n := l.number + 1; l.number > 0; n++ {
		before, after, ok := strings.Cut(rest, " "+strconv.Itoa(n)+". ")
		if !ok || !isEnd(before) {
			break
		}
		out, rest = append(out, strings.TrimSpace(before)), after
	}
	return append(out, rest)
}

// linesOf reads the marks and facts of lines in a language, and joins a label with the time or number in the line below it.
func linesOf(texts []string, language string) []line {
	var out []line
	blank, capitals := false, 0
	for _, s := range texts {
		s = sender.ReplaceAllString(s, "")
		if ruled.MatchString(s) {
			out, blank = underline(out, s, blank), true
			continue
		}
		if last := len(out) - 1; last > 0 && out[last].number > 0 { // "4- 25 minutes" after "3- ..."
			if n := strconv.Itoa(out[last].number + 1); strings.HasPrefix(s, n+"- ") {
				s = strings.Replace(s, "-", ".", 1)
			}
		}
		l := newLine(s)
		if l.text == "" && l.number > 0 {
			l.set(strconv.Itoa(l.number))
		}
		if last := len(out) - 1; last >= 0 {
			_, label := labelAt(out[last].ws, 0)
			joined := line{blank: out[last].blank}
			if label > 0 && label >= len(out[last].ws)-1 {
				joined.set(strings.TrimSuffix(out[last].text, ":") + ": " + l.text)
				joined.facts = readFacts(joined.text, language)
			}
			if joined.facts.all {
				out[last] = joined
				continue
			}
		}
		l.facts = readFacts(l.text, language)
		l.blank, blank = blank, false
		if isCapitals(l.text) {
			capitals++
		}
		out = append(out, l)
	}
	for i := range out {
		out[i].head(capitals*2 < len(out))
	}
	if len(out) > 0 && out[0].kind == methodHeading && out[0].level == 0 && said("method", out[0].ws, 0) == 0 {
		out[0].kind, out[0].rest = noHeading, "" // a title that ends as a heading: "Köfte tarifi"
	}
	return out
}

// head finds out whether a line is a heading by its form, and of what. Capitals are one where most of a text is not in capitals.
func (l *line) head(capitals bool) {
	if l.step || l.number > 0 {
		return
	}
	shouted := capitals && isCapitals(l.text) && !l.item && !l.ends
	if l.level == 0 && l.length <= 6 && !isDigit(l.text) && (strings.HasSuffix(l.text, ":") || shouted) {
		l.level = byForm
	}
	text, _, bracket := strings.Cut(l.text, "(")
	if l.facts.all && bracket {
		l.kind, _ = heading(text, l.level > 0) // "Method (2 hours)"
	} else if !l.facts.all {
		l.kind, l.rest = heading(l.text, l.level > 0)
	}
}

// underline makes a heading of the last line if dashes underline it. What is above dashes in a table is its head, and dropped.
func underline(out []line, dashes string, blank bool) []line {
	last := len(out) - 1
	switch {
	case last < 0 || blank || dashes == "":
	case dashes[0] == '|':
		return out[:last]
	case len(dashes) > 2 && strings.Trim(dashes, "=-") == "" && !strings.Contains(out[last].text, ":") && out[last].length <= 12:
		out[last].level = map[byte]int{'=': 1, '-': 2}[dashes[0]]
	}
	return out
}
