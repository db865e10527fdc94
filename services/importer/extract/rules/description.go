package rules

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// maxLine is the longest line, in bytes, that counts as an ingredient where it may be other text.
const maxLine = 200

var (
	stamped = lazyregexp.New(`^[(\[]?\d{1,2}:\d{2}(?::\d{2})?\b`)
	address = lazyregexp.New(`(?i)https?:|www\.|@\w|\.com\b`)

	// offer matches a line up to the words before the address of a shop: "- get it at", "(link:".
	offer = lazyregexp.New(`^(.*?\pL.*?)(?: -|:? \(|: | \||[ :(@-]*$).*$`)

	// aside matches what follows the name of a dish on a line with facts: "Pancakes (serves 4)".
	aside = lazyregexp.New(`\s*(?:[(|,]|\s-\s).*`)

	// counted matches a step behind a number without a mark.
	counted = lazyregexp.New(`^\d{1,2}\s+([\p{Lu}\p{Lo}].*)$`)

	// passedOn matches what mail programs write before a subject.
	passedOn = lazyregexp.New(`(?i)^(?:(?:re|fwd?|aw|wg|tr|rv|sv|vs|enc|res|odp|pd|ynt|rif|r|i)\s*:\s*)+`)
)

// text is the state of reading a written text line by line.
type text struct {
	whole    bool // the text is the recipe itself, and no description of a video
	language string
	lines    []line
	recipe   *recipe.Recipe // gets the servings and times

	mode    string // the kind of the last heading
	section string // the last heading inside the list or the method
	level   int    // of the section
	fresh   bool   // the last line was the section
	prefix  string // the section, until its first step

	title      string
	titleLevel int
	greeted    bool   // the title is a greeting, unless another follows: "Hi! Here is the recipe", "Dear Ann,"
	another    string // the title of a second recipe, which ends the first
	headless   bool   // the list has no heading

	listed []recipe.Ingredient
	loose  []recipe.Ingredient // lines with an amount outside all lists
	method []string
	rest   []string // what has no other place
	intro  int      // the number of its lines above the first heading

	half    string // an amount whose food is in the next line
	items   bool   // the lines of the list or the method have marks
	open    bool   // the next line may continue the last step
	labeled bool   // "Step 1" began the last step, so that the next lines belong to it
	await   bool   // the next line begins a step, after a label on a separate line
	count   int    // the steps with a number that no mark follows: "1 Mix"
}

// readDescription finds the list of ingredients, the method, the servings and the times in the description. Of a text that is
// the recipe it keeps the rest as well.
func (r *reader) readDescription() {
	t := text{whole: r.in.Untimed, language: r.language, lines: linesOf(r.lines, r.language), recipe: &r.recipe}
	for i := 0; i < len(t.lines) && t.another == ""; i++ {
		t.line(i)
	}
	t.end()
	if t.another != "" {
		r.warn(WarnSeveral, "The text has several recipes: the first was taken, and what begins with \""+t.another+"\" was left out.")
	}
	if t.headless && (len(t.listed) < 3 && !inKitchenUnits(t.listed) || len(t.method) == 0) {
		t.listed, t.method = nil, nil // the lines of a talk
	}
	if len(t.listed) < 2 && len(t.loose) >= 3 && (r.english() || inKitchenUnits(t.loose)) {
		t.listed = t.loose
	}
	r.listed, r.instructions, r.text = t.listed, t.method, t
	if t.whole && len(t.listed) > 0 {
		r.foreign = r.language != "en"
	}
}

// nameDish takes the title and the description from a text that is the recipe.
func (r *reader) nameDish() {
	if len(r.in.Segments) == 0 || len(r.in.Image) > 0 {
		return // what else is said below a video or on a photo is not about the dish
	}
	r.recipe.Description = strings.TrimSpace(strings.Join(r.text.rest, "\n"))
	r.recipe.Title = cmp.Or(named(r.text.title), r.recipe.Title)
}

// Written reports whether a text holds the list of ingredients and the method of a recipe.
func Written(text string) bool {
	r := reader{in: extract.Input{Description: text, Untimed: true}}
	r.readLines()
	r.readDescription()
	return len(r.listed) > 0 && len(r.instructions) > 0
}

// line reads line i.
func (t *text) line(i int) {
	l := &t.lines[i]
	fresh := t.fresh
	t.fresh = false
	inside := t.mode == ingredientsHeading || t.mode == methodHeading
	facts := l.facts.all && l.kind == noHeading && (l.facts.sure || !inside)
	if facts || !inside || l.kind != noHeading {
		l.facts.addTo(t.recipe)
	}
	switch {
	case facts:
	case l.kind != noHeading:
		t.enter(l, fresh)
	case !t.whole && stamped.MatchString(l.text):
	case t.whole && t.second(i):
		t.another = l.text
	case t.mode == ingredientsHeading:
		t.list(i)
	case t.mode == methodHeading:
		t.step(i)
	case !t.whole:
		t.stray(l)
	case t.mode == noHeading:
		t.top(i)
	default:
		t.rest = append(t.rest, l.text)
	}
}

// enter begins the part under a heading, and reads what follows the heading on its line.
func (t *text) enter(l *line, fresh bool) {
	t.end()
	if t.mode == noHeading {
		t.intro = len(t.rest)
	}
	deeper := l.level < byForm && t.level < byForm && l.level > t.level && t.level > 0
	if !fresh && !deeper {
		t.section, t.level = "", 0
	}
	t.mode, t.prefix = l.kind, t.section
	for i := range l.ws { // "Ingredients for the dough", but not "for 4 people"
		if i > 0 && said("for", l.ws, i) > 0 && !strings.ContainsFunc(l.text, unicode.IsDigit) {
			head, _, _ := strings.Cut(l.text[l.ws[i].Start:], ":")
			t.section, t.level, t.prefix = head, max(1, l.level), head
			break
		}
	}
	switch {
	case t.mode == ingredientsHeading:
		for _, part := range enumerated(l.rest) {
			entry := newLine(part)
			t.ingredient(&entry)
		}
	case t.mode == methodHeading:
		if entry := newLine(l.rest); entry.text != "" {
			t.add(&entry, true)
		}
	case t.whole:
		t.rest = append(t.rest, l.text)
	}
}

// enumerated cuts a list in one line at its commas, but not "1,5 kg" and "flour, sifted".
func enumerated(list string) []string {
	parts := strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(";,،、，；", r) })
	for i := len(parts) - 1; i > 0; i-- {
		glued := isDigit(parts[i]) && isDigit(parts[i-1][len(parts[i-1])-1:])
		if ws := words.Split(parts[i]); glued || len(ws) > 0 && listed("preparation", ws[0].Lower) {
			parts[i-1], parts = parts[i-1]+","+parts[i], slices.Delete(parts, i, i+1)
		}
	}
	return parts
}

// end ends the list or the method.
func (t *text) end() {
	if t.half != "" {
		t.listed = append(t.listed, Ingredient(t.half, t.language))
	}
	t.half, t.open, t.labeled, t.await, t.items, t.count = "", false, false, false, false, 0
}

// stray keeps an ingredient that is named outside a list.
func (t *text) stray(l *line) {
	in, ok := ingredientLine(l.text, t.language)
	if ok && in.Qty != "" && (in.Unit != "" || isFood(in.Item)) && len(l.text) <= maxLine && !address.MatchString(l.text) {
		t.loose = append(t.loose, in)
	}
}

// second reports whether another recipe begins at line i: the text has one already, and the line is the title of another list.
func (t *text) second(i int) bool {
	l := &t.lines[i]
	if len(t.listed) == 0 || len(t.method) == 0 || l.item || l.step || l.length > 10 || l.ends || l.amount || l.isFor() {
		return false
	}
	if l.level > 0 && l.level < byForm && t.titleLevel > 0 && t.titleLevel < byForm {
		return l.level <= t.titleLevel
	}
	amounts := 0
	for _, next := range t.lines[i+1 : min(len(t.lines), i+8)] {
		if next.kind != noHeading {
			return next.kind == ingredientsHeading
		}
		if next.amount {
			amounts++
		}
	}
	return t.headless && l.blank && amounts > 2
}

// begins reports whether line i is the first of a list without a heading.
func (t *text) begins(i int) bool {
	l := &t.lines[i]
	next := t.lines[i+1 : min(len(t.lines), i+3)]
	if !l.amount || !slices.ContainsFunc(next, func(next line) bool { return next.amount }) {
		return false
	}
	return i > 0 || isDigit(l.text) || next[0].amount && !isDigit(next[0].text) // and not "Buns, 40 pieces" above "2 eggs"
}

// top reads a line before the first heading: the title, an introduction, or the first of a list without a heading.
func (t *text) top(i int) {
	l := &t.lines[i]
	labeled := false
	name := l.text
	if n := said("title", l.ws, 0); n > 0 && n < len(l.ws)-1 && l.ws[n].Text == ":" {
		name, labeled = passedOn.ReplaceAllString(strings.TrimSpace(l.text[l.ws[n].End:]), ""), true
	}
	listed := t.begins(i)
	switch {
	case labeled, t.isTitle(i, listed):
		t.entitle(l, name)
		if labeled {
			t.titleLevel = byForm
		}
	case listed:
		t.mode, t.headless, t.prefix = ingredientsHeading, true, ""
		t.ingredient(l)
	case t.part(i):
	default:
		t.rest = append(t.rest, l.text)
	}
}

// isTitle reports whether line i has the form of the title: a higher heading than the title so far, or the first short line that is not
// listed.
func (t *text) isTitle(i int, listed bool) bool {
	l := &t.lines[i]
	if l.level > 0 && l.level < byForm && (t.titleLevel == 0 || l.level < t.titleLevel) {
		return true
	}
	if listed || t.title != "" && (!t.greeted || l.isFor()) || l.item && i > 0 || l.length > 12 {
		return false
	}
	return !l.ends || l.facts.found && !isEnd(aside.ReplaceAllString(l.text, "")) // "Stew (4 pers.)"
}

// entitle takes the title from a line. What was the title before is kept with the rest.
func (t *text) entitle(l *line, name string) {
	if t.title != "" {
		t.rest = append(t.rest, t.title)
	}
	t.greeted = strings.HasSuffix(name, ",") || strings.ContainsAny(name, "!?") ||
		strings.HasSuffix(name, ":") && (strings.Contains(name, ",") || startsLow(name))
	if l.facts.found {
		name = strings.TrimRight(aside.ReplaceAllString(name, ""), " :")
	}
	t.title, t.titleLevel = strings.TrimFunc(name, func(r rune) bool {
		return unicode.Is(unicode.So, r) || strings.ContainsRune(`: 【】「」《》"`, r)
	}), l.level
}

// part reads the heading of a part: "For the dough". A part without lines leaves nothing.
func (t *text) part(i int) bool {
	l := &t.lines[i]
	name := strings.TrimRight(l.text, ": ")
	next := &line{level: 1}
	if i+1 < len(t.lines) {
		next = &t.lines[i+1]
	}
	known := slices.ContainsFunc(t.listed, func(i recipe.Ingredient) bool { return i.Section != "" && strings.EqualFold(i.Section, name) })
	above := t.whole && t.mode == ingredientsHeading && len(t.listed) > 0 && l.blank && !l.item && l.length <= 4 && next.amount && !next.blank
	switch {
	case l.step, l.number > 0,
		l.level == byForm && (l.ends || l.acts && next.level > 0),
		l.level == 0 && (l.amount || !known && (l.ends || !above && (!l.isFor() || l.length > 5))):
		return false
	}
	t.end()
	t.section, t.level, t.fresh, t.prefix = name, max(1, l.level), true, name
	return true
}

// list reads a line of the list, or the first of a method without a heading.
func (t *text) list(i int) {
	l := &t.lines[i]
	if !t.whole && address.MatchString(l.text) {
		l.text = offer.ReplaceAllString(l.text[:address.FindStringIndex(l.text)[0]], "$1")
	}
	switch {
	case t.part(i):
	case t.whole && len(t.listed) > 0 && t.turns(i):
		t.end()
		t.mode, t.section, t.prefix = methodHeading, "", ""
		t.step(i)
	case !t.whole && len(t.listed) > 0 && l.length > 12 && !l.amount:
		t.mode = noHeading
	default:
		t.ingredient(l)
	}
}

// turns reports whether the method begins at line i of a list, without a heading: steps are told from ingredients by their form.
func (t *text) turns(i int) bool {
	l := &t.lines[i]
	next := line{}
	if i+1 < len(t.lines) {
		next = t.lines[i+1]
	}
	switch {
	case l.step, l.number == 1 && l.text == "1" && len(t.listed) > 1 && (next.ends || next.acts): // a number above its step
		return true
	case l.amount:
		return false
	case l.length > 12, l.number == 1 && len(t.listed) > 1, l.acts && (!l.item || !t.items || l.blank):
		return true
	case l.length < 3, !l.ends && (!l.blank || l.length == 3):
		return false
	}
	block := t.block(i)
	if end := slices.IndexFunc(block[1:], func(next line) bool { return next.blank }); end >= 0 {
		block = block[:end+1]
	}
	return !slices.ContainsFunc(block[1:], func(next line) bool { return next.amount })
}

// ingredient reads an entry of the list, or the rest of one.
func (t *text) ingredient(l *line) {
	s := strings.TrimSpace(t.half + " " + l.text)
	ws := measure.Split(s)
	if _, used := measure.ReadAmount(ws, 0); t.whole && used > 0 && used == len(ws) && len(s) <= maxLine {
		t.half = s
		return
	}
	if last := len(t.listed) - 1; t.whole && t.half == "" && last >= 0 && t.unfinished(t.listed[last].Raw, l) {
		s = t.listed[last].Raw + " " + s
		t.listed = t.listed[:last]
	}
	t.half, t.items = "", t.items || l.item
	in, ok := ingredientLine(s, t.language)
	if !ok || len(s) > maxLine {
		if !t.whole || !strings.ContainsFunc(s, unicode.IsLetter) {
			return
		}
		in = Ingredient(s, t.language)
	}
	in.Section = t.section
	t.listed = append(t.listed, in)
}

// unfinished reports whether an entry of the list goes on in the next line.
func (t *text) unfinished(entry string, next *line) bool {
	if next.item || next.blank || next.amount || next.level > 0 {
		return false
	}
	return t.items && startsLow(next.text) || strings.HasSuffix(entry, ",") || strings.Count(entry, "(") > strings.Count(entry, ")")
}

// step reads a line of the method: a step, or the rest of one.
func (t *text) step(i int) {
	l := &t.lines[i]
	t.counted(i)
	switch {
	case !t.whole && address.MatchString(l.text), t.part(i), t.isNoText(l):
	case isMarked(*l) || t.await || !t.open || t.labeled:
		t.add(l, isMarked(*l) || t.await || !t.open)
	case t.whole && l.blank && !slices.ContainsFunc(t.block(i), t.isStep): // a wish, a name, a source
		t.mode = notesHeading
		t.rest = append(t.rest, l.text)
	case t.items:
		t.add(l, l.blank && !slices.ContainsFunc(t.block(i), isMarked))
	default:
		t.add(l, l.blank || !t.continues(i))
	}
}

// isNoText reports whether a line of the method has no text of a step: a label alone, or a wish.
func (t *text) isNoText(l *line) bool {
	switch {
	case t.whole && !isMarked(*l) && l.isWish():
		t.rest = append(t.rest, l.text)
	case !strings.ContainsFunc(l.text, unicode.IsLetter): // "Step 1" and "2" alone
		t.await = t.await || l.step || l.number > 0
		t.labeled = t.await
	default:
		return false
	}
	return true
}

// counted takes the number from a step of "1 Mix", "2 Bake", which counts up.
func (t *text) counted(i int) {
	l := &t.lines[i]
	m := counted.FindStringSubmatch(l.text)
	is := func(text string, n int) bool { return strings.HasPrefix(text, strconv.Itoa(n)+" ") }
	if m != nil && is(l.text, t.count+1) && (t.count > 0 || i+1 < len(t.lines) && is(t.lines[i+1].text, 2)) {
		t.count++
		l.item = true
		l.set(m[1])
	}
}

func isMarked(l line) bool { return l.item || l.step }

// isStep reports whether a line has the form of a step. Below marked steps, a short sentence may be a wish.
func (t *text) isStep(l line) bool {
	return isMarked(l) || l.acts || l.ends && (!t.items || l.length > 4)
}

// add begins a step with a line, or appends the line to the last step.
func (t *text) add(l *line, begins bool) {
	marked := l.item || l.step || t.await
	if marked || begins {
		t.labeled, t.items = l.step || t.await, marked
	}
	t.open, t.await = true, false
	if last := len(t.method) - 1; !begins {
		t.method[last] = join(t.method[last], l.text, t.labeled)
		return
	}
	for _, s := range inlined(l) {
		if t.prefix != "" {
			s = t.prefix + ": " + s
		}
		t.prefix = ""
		t.method = append(t.method, s)
	}
}

// block returns the lines from line i up to the next heading, at most 50, so that the time to read a text stays linear.
func (t *text) block(i int) []line {
	lines := t.lines[i:min(len(t.lines), i+50)]
	if end := slices.IndexFunc(lines[1:], func(l line) bool { return l.kind != noHeading || l.level > 0 }); end >= 0 {
		return lines[:end+1]
	}
	return lines
}

// continues reports whether line i continues the sentence of the line before it.
func (t *text) continues(i int) bool {
	before, l := &t.lines[i-1], &t.lines[i]
	if before.ends || before.kind != noHeading || before.level > 0 || strings.HasSuffix(before.text, ":") {
		return false
	}
	first, _ := utf8.DecodeRuneInString(l.text)
	if l.acts && startsLow(t.method[len(t.method)-1]) {
		return false // all lines begin in lower case
	}
	wide := utf8.RuneCountInString(before.text) > 40 && !isUnspaced(first) && (l.ends || !unicode.IsUpper(first))
	return wide || strings.HasSuffix(before.text, ",") || unicode.IsLower(first) && !startsLow(before.text)
}

func startsLow(text string) bool {
	first, _ := utf8.DecodeRuneInString(text)
	return unicode.IsLower(first)
}

// join appends a line to a step. A heading of the step gets a colon.
func join(step, next string, labeled bool) string {
	first, _ := utf8.DecodeRuneInString(next)
	switch {
	case isUnspaced(first):
		return step + next
	case labeled && !isEnd(step) && len(step) < 50 && unicode.IsUpper(first):
		return strings.TrimRight(step, ":") + ": " + next
	}
	return step + " " + next
}

// isFood reports whether a text names a food.
func isFood(text string) bool { return holdsFood(words.Stems(words.Split(words.Plain(text)))) }

func holdsFood(stems []string) bool {
	for i := range stems {
		if used, dependent := words.Food(stems, i); used > 0 && !dependent {
			return true
		}
	}
	return false
}
