package rules

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Ingredient reads one line of a list of ingredients, such as "2 cups flour, sifted", in the language of a BCP 47 tag, "" for
// one that is not known. A line that cannot be taken apart is the item as a whole, so the item is empty only for an empty line.
// When the line has a number that is not read for certain, its quantity is marked as unverified. Ingredient does not cut texts;
// extract.Clean does.
func Ingredient(line, language string) recipe.Ingredient {
	line = strings.Join(strings.Fields(line), " ")
	if len(line) <= 4*recipe.MaxNote { // a longer line has no parts
		if i, ok := ingredientLine(line, language); ok {
			return i
		}
	}
	if hasNumber(measure.SplitIn(language, words.Plain(line))) {
		return unread(line)
	}
	return recipe.Ingredient{Item: line, Raw: line}
}

//go:embed notes.txt
var notesText string

// remarkPhrases matches the notes after the name of an ingredient, or before it. Go's word boundaries know ASCII only.
var remarkPhrases = sync.OnceValue(func() *regexp.Regexp {
	lists := [2]string{"plus (?:more|extra)[^,;)]*", "適量"} // with and without spaces around
	for lang, phrase := range words.Lists(notesText) {
		i := 0
		if lang == "ja" || lang == "zh" || lang == "th" {
			i = 1
		}
		lists[i] += "|" + regexp.QuoteMeta(strings.ReplaceAll(phrase, "~", " "))
	}
	out := regexp.MustCompile(`(?i)(?:^|[\s,;(])(` + lists[0] + `)(?:[\s,;)]|$)|(` + lists[1] + `)`)
	out.Longest()
	return out
})

// plurals matches the ending of a plural that is left to the reader: "Zehe/n", "oignon(s)".
var plurals = lazyregexp.New(`(\pL)(?:\((?:s|es|n|en|er|e|x|a|i)\)|/(?:n|en|s|e|er)(\s|$))`)

// ingredientLine reads a line of a list: "2 cups flour, sifted", "Flour - 2 cups", "Salt to taste".
func ingredientLine(line, language string) (recipe.Ingredient, bool) {
	plain := newLine(line).text
	out := recipe.Ingredient{Raw: plain}
	if strings.HasSuffix(plain, "?") || !strings.ContainsFunc(plain, unicode.IsLetter) {
		return out, false
	}
	plain, out.Note = withoutPhrase(plain)
	plain = plurals.ReplaceAllString(plain, "$1$2")
	ws := measure.SplitIn(language, plain)
	l := lineReader{ws: ws, text: plain, out: &out}
	for i := 0; i < len(ws) && !measure.Reads(ws, i, ",", ";", "(", "+"); i++ { // "a little less than a cup", not "200 g and a little more"
		l.unclear = l.unclear || measure.Reads(ws, i, "less") && !measure.Reads(ws, i-1, "and", "or")
	}
	rest, remarks := withoutBrackets(l.amount())
	rest = l.alternative(rest, language)
	if l.unclear {
		return unread(out.Raw), true
	}
	for _, remark := range remarks {
		addNote(&out, remark)
	}
	if out.Qty == "" && hasNumber(measure.SplitIn(language, rest)) {
		return unread(out.Raw), true
	}
	l.item(rest, language)
	if len(strings.Fields(out.Item)) > 9 || !strings.ContainsFunc(out.Item, unicode.IsLetter) {
		return recipe.Ingredient{Raw: out.Raw}, false
	}
	if ws := measure.SplitIn(language, out.Item); hasNumber(ws) || hasAmount(ws, &out) {
		return unread(out.Raw), true
	}
	return out, true
}

// symbols matches the short forms of units that are no words of a language.
var symbols = lazyregexp.New(`^(?:[mcdk]?[gl]|oz|lb|[мк]?г|м?л)$`)

// hasAmount reports whether an item begins with a part of its amount that was not read, as in "nearly a pound of beef" and
// "cent cinquante g de farine".
func hasAmount(ws []words.Word, i *recipe.Ingredient) bool {
	if len(ws) == 0 {
		return false
	}
	inWords := ws[0].Kind == words.Digits && ws[0].Reading != ""
	quoted := ws[0].Text == `"` && strings.Count(i.Item, `"`)%2 == 1 // the inches of `1" thick`
	if i.Qty != "" && (inWords || quoted || measure.Reads(ws, 0, "+", "/", "=", "°", "and", "or", "plus")) {
		return true
	}
	for at := range ws {
		u, used := measure.ReadUnit(ws, at)
		word := used > 1 || utf8.RuneCountInString(ws[at].Text) > 2 || symbols.MatchString(ws[at].Lower)
		if u.Class == measure.Measured && word && u.Name != "stick" && at+used < len(ws) && i.Unit == "" && (at > 0 || i.Qty != "") {
			return true
		}
	}
	return false
}

// withoutPhrase takes the first note that is one of the phrases, in separate brackets or outside of all, out of a line.
func withoutPhrase(line string) (rest, note string) {
	for _, m := range remarkPhrases().FindAllStringSubmatchIndex(line, -1) {
		from, to := max(m[2], m[4]), max(m[3], m[5])
		depth := strings.Count(line[:from], "(") - strings.Count(line[:from], ")")
		own := strings.HasSuffix(line[:from], "(") && strings.HasPrefix(line[to:], ")")
		if own && depth == 1 {
			from, to = from-1, to+1
		} else if depth > 0 {
			continue
		}
		before, after := strings.TrimRight(line[:from], " ,;"), line[to:]
		return strings.TrimSpace(before + " " + strings.TrimLeft(after, " ")), strings.Trim(line[from:to], " ()")
	}
	return line, ""
}

// cut cuts a text at its first comma that is not inside of a number.
func cut(text string) (before, after string) {
	for i := range len(text) {
		isDigit := func(at int) bool { return at >= 0 && at < len(text) && text[at] >= '0' && text[at] <= '9' }
		if text[i] == ',' && !(isDigit(i-1) && isDigit(i+1)) {
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// unread returns a line as text, whose amount is marked because it has more than one reading, or none.
func unread(line string) recipe.Ingredient {
	return recipe.Ingredient{Item: line, Raw: line, Unverified: []string{"qty"}}
}

// lineReader takes a line apart.
type lineReader struct {
	ws      []words.Word
	text    string
	out     *recipe.Ingredient
	read    measure.Amount
	unclear bool
	counted string // the word of a unit that may be the item as well, as in "2 cloves, crushed"
}

// amount reads the amount at the beginning or the end of the line, and returns the rest.
func (l *lineReader) amount() string {
	ws, from := l.ws, about(l.ws, 0)
	a, used := measure.ReadUncounted(ws, from)
	last := from + used - 1
	compound := used > 0 && a.Unit.Name == "" && (isInches(ws, last) || ws[last].Lower == "-" && a.Number.Max >= 1) // "five-spice"
	if used > 0 && !compound && !isName(ws, from) && (from+used < len(ws) || a.Unit.Name != "") {
		end := from + used
		if end == len(ws) && a.Unit.Class == measure.Measured {
			l.unclear = true // an amount of nothing
			return ""
		}
		l.set(a, from)
		if a.Unit.Name != "" && a.Unit.Class != measure.Measured {
			l.counted = strings.TrimRight(ws[end-1].Text, ".")
		}
		if end == len(ws) {
			return ""
		}
		return l.text[ws[end].Start:]
	}
	if rest, ok := l.partOf(); ok {
		return rest
	}
	rest := l.atEnd()
	l.unclear = l.unclear || compound && l.out.Qty == ""
	return rest
}

func (l *lineReader) set(a measure.Amount, from int) {
	l.unclear, l.read = l.unclear || a.Unclear, a
	if from > 0 {
		if note := strings.Trim(words.Join(l.ws[:from]), " .:,"); measure.Reads(l.ws, 0, "about") {
			addNote(l.out, note)
		}
	}
	setAmount(l.out, a)
}

// about skips "about", "ca." and the like.
func about(ws []words.Word, i int) int {
	for measure.Reads(ws, i, "about") || i > 0 && i < len(ws) && ws[i].Lower == "." {
		i++
	}
	return i
}

// partOf reads "juice of 1 lemon", "le jus d'un citron", "сок 1 лимона": the part is a note.
func (l *lineReader) partOf() (string, bool) {
	ws, part := l.ws, false
	for i := range ws {
		if _, isNumber := measure.ReadNumber(ws, i); part && isNumber > 0 {
			a, used := measure.ReadUncounted(ws, i)
			end := i + used
			if used == 0 || end >= len(ws) || ws[end].Kind != words.Letters || a.Unit.Name != "" && !measure.Reads(ws, i-1, "of", "from") {
				return "", false
			}
			before := i
			for before > 1 && (measure.Reads(ws, before-1, "of", "from", "-") || ws[before-1].Lower == "from") {
				before--
			}
			l.set(a, 0)
			addNote(l.out, words.Join(ws[:before]))
			return l.text[ws[end].Start:], true
		}
		if part = part || i < 4 && measure.Reads(ws, i, "juice"); ws[i].Kind != words.Letters && ws[i].Lower != "-" {
			break
		}
	}
	return "", false
}

// atEnd reads "Flour - 2 cups", "Salt: a pinch", "Mehl 200 g, gesiebt" and "面粉250克".
func (l *lineReader) atEnd() string {
	ws, depth := l.ws, 0
	for i := 1; i < len(ws); i++ {
		switch ws[i].Lower {
		case "(":
			depth++
		case ")":
			depth--
		}
		separator := slices.Contains([]string{"-", ":", "=", ",", "…", "・", "·", "x"}, ws[i].Lower)
		from := i
		if separator {
			from++
		}
		from = about(ws, from)
		if depth > 0 || !separator && (isKind(ws, i) || isName(ws, i)) {
			continue
		}
		a, end := lastAmount(ws, from)
		if end == 0 || !separator && !a.Certain(ws[i-1], end == len(ws)) {
			continue
		}
		if from > i && measure.Reads(ws, from-1, "about") || from > i+1 {
			addNote(l.out, strings.Trim(words.Join(ws[i:from]), " .:,-"))
		}
		l.set(a, 0)
		name := strings.TrimRight(l.text[:ws[i].Start], " -:=,…・·")
		if end < len(ws) {
			name += " (" + strings.Trim(l.text[ws[end].Start:], " ,;()") + ")"
		}
		return name
	}
	return l.text
}

// lastAmount reads an amount after which the line ends or a note begins. end is 0 without one.
func lastAmount(ws []words.Word, from int) (a measure.Amount, end int) {
	a, used := measure.ReadUncounted(ws, from)
	end = from + used
	if end == len(ws)-1 && ws[end].Lower == "." {
		end++
	}
	if used == 0 || a.Number.Vague || end < len(ws) && !slices.Contains([]string{",", "(", ";"}, ws[end].Lower) {
		return a, 0
	}
	return a, end
}

// endsInAmount reports whether a text is a name with an amount after it.
func endsInAmount(text string) bool {
	l := lineReader{ws: measure.SplitIn("", text), text: text, out: &recipe.Ingredient{}}
	return l.atEnd() != text
}

// isKind reports whether the number at i belongs to the name before it: "Type 405".
func isKind(ws []words.Word, i int) bool {
	before := i - 1
	if before > 0 && ws[before].Lower == "." {
		before--
	}
	return ws[i].Kind == words.Digits &&
		(strings.HasPrefix(ws[i].Text, "00") && (before < 0 || ws[before].Kind != words.Digits) ||
			before >= 0 && (listed("named", ws[before].Lower) && !nextIsUnit(ws, i) || listed("flours", ws[before].Lower) && !hasUnit(ws, i)))
}

func hasUnit(ws []words.Word, i int) bool {
	a, _ := measure.ReadAmount(ws, i)
	return a.Unit.Name != ""
}

func nextIsUnit(ws []words.Word, i int) bool {
	_, used := measure.ReadUnit(ws, i+1)
	return used > 0
}

// isName reports whether the digits at i are a part of a name: "7UP", "T55", "5-spice", "70%".
func isName(ws []words.Word, i int) bool {
	if i >= len(ws) || ws[i].Kind != words.Digits || ws[i].Reading != "" && ws[i].Reading != "?" {
		return false
	}
	latin := func(w words.Word) bool {
		r, _ := utf8.DecodeRuneInString(w.Text)
		return w.Kind == words.Letters && unicode.In(r, unicode.Latin, unicode.Cyrillic)
	}
	if i > 0 && latin(ws[i-1]) && ws[i-1].End == ws[i].Start && !measure.Reads(ws, i-1, "x", "about", "of") {
		return true
	}
	next := i + 1
	if next < len(ws) && ws[next].Lower == "-" && ws[next].Start == ws[i].End {
		next++
	}
	if next >= len(ws) || ws[next].Start != ws[next-1].End {
		return false
	}
	return ws[next].Lower == "%" || latin(ws[next]) && !nextIsUnit(ws, next-1) && !measure.Reads(ws, next, "x", "to", "or", "and")
}

// hasNumber reports whether the words have a number that is not a part of a name.
func hasNumber(ws []words.Word) bool {
	for i, w := range ws {
		isNumber := w.Kind == words.Digits && strings.ContainsFunc(w.Text, unicode.IsNumber)
		percent := i+1 < len(ws) && ws[i+1].Lower == "%"
		if isNumber && !percent && !isName(ws, i) && !isKind(ws, i) && !isInches(ws, i) {
			return true
		}
	}
	return false
}

func isInches(ws []words.Word, i int) bool {
	return i+2 < len(ws) && ws[i+1].Lower == "-" && ws[i+1].Start == ws[i].End
}

// alternative makes notes of what follows with another amount: "or 200 g margarine", "+ 1 egg yolk", "à 150 g".
func (l *lineReader) alternative(rest, language string) string {
	ws := measure.SplitIn(language, rest)
	for i := 1; i < len(ws) && l.out.Qty != ""; i++ {
		before := rest[:ws[i].Start]
		if size, used := measure.ReadEach(ws, i); used > 0 && i+used == len(ws) {
			addNote(l.out, size)
			return before
		}
		if part, used := measure.ReadPart(ws, i); used > 0 && i+used == len(ws) && l.out.Unit == "" { // "una cebolla y media"
			l.read.Number.Min, l.read.Number.Max = l.read.Number.Min+part, l.read.Number.Max+part
			l.out.Qty = recipe.Quantity(l.read.Number.Text())
			return before
		}
		if _, used := measure.ReadNumber(ws, i+1); used > 0 && ws[i+1].Kind == words.Digits && i+1+used < len(ws) &&
			measure.Reads(ws, i, "or", "plus", "+", "and") {
			l.unclear = l.unclear || measure.Sized(ws[:i]) // "1 large or 2 small onions"
			addNote(l.out, rest[ws[i].Start:])
			return before
		}
	}
	return rest
}

// ofs matches the word for "of" before the item.
var ofs = lazyregexp.New(`^(?i:d'|d’|de l'|de la |du |des |de |di |dell'|of |van |의 |の|的)\s*`)

// item reads the name of the food and the notes after it.
func (l *lineReader) item(rest, language string) {
	rest = strings.TrimLeft(rest, " .:;-)")
	if l.out.Qty != "" || l.out.Unit != "" {
		ws := measure.SplitIn(language, rest)
		if n := about(ws, 0); n > 0 && n < len(ws) && (measure.Reads(ws, n, "of") || slices.Contains([]string{"each", "kadar"}, ws[0].Lower)) {
			addNote(l.out, words.Join(ws[:n])) // "1 kg circa di pomodori"
			rest = rest[ws[n].Start:]
		}
		rest = ofs.ReplaceAllString(rest, "")
	}
	item, note := cut(rest)
	switch {
	case strings.TrimSpace(item) == "" && l.counted != "" && !isFood(note):
		item, l.out.Unit = l.counted, ""
	case strings.TrimSpace(item) == "" || isPrepared(item, language) && strings.TrimSpace(note) != "":
		before, after := cut(note)
		if item = strings.TrimSpace(item); item != "" {
			item += ", "
		}
		item, note = item+strings.TrimSpace(before), after
	}
	addNote(l.out, strings.TrimSpace(note))
	l.out.Item = strings.Trim(strings.Join(strings.Fields(item), " "), " -:;,.*…・·+")
}

// isPrepared reports whether all words of a text describe the food after them: "finely sliced".
func isPrepared(text, language string) bool {
	ws := measure.SplitIn(language, words.Plain(text))
	for i := range ws {
		if !measure.Reads(ws, i, "chopped") {
			return false
		}
	}
	return len(ws) > 0
}

// bracketed matches a part in brackets, which may have brackets inside and may end with the text.
var bracketed = lazyregexp.New(`\(((?:[^()]|\([^()]*\))*)(?:\)|$)`)

// withoutBrackets returns a text without the parts in brackets, and these parts. A bracket without the other one is dropped.
func withoutBrackets(text string) (outside string, inside []string) {
	bare := strings.NewReplacer("(", " ", ")", "")
	for _, m := range bracketed.FindAllStringSubmatch(text, -1) {
		inside = append(inside, strings.Join(strings.Fields(bare.Replace(m[1])), " "))
	}
	return bare.Replace(bracketed.ReplaceAllString(text, " ")), inside
}

func addNote(i *recipe.Ingredient, note string) {
	note = strings.TrimRight(strings.TrimLeft(note, " ,;-"), " ,;.-") // a point may begin a number
	switch {
	case note == "":
	case i.Note == "":
		i.Note = note
	default:
		i.Note += ", " + note
	}
}

func setAmount(i *recipe.Ingredient, a measure.Amount) {
	i.Qty, i.Unit = recipe.Quantity(a.Number.Text()), a.Unit.Name
	addNote(i, a.Note)
}
