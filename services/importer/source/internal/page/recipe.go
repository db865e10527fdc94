package page

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/text/unicode/norm"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// WarnSeveral means that the page has more recipes than the one that was read.
const WarnSeveral = "several_recipes"

// Recipe returns the recipe that the page is about, unchanged: it may lack ingredients or steps. Of several recipes it is
// the one that the page names as its main entity, that has the address of the page, that is complete, or that the title
// names. When these leave more than one, it is the first of them, with a warning.
func (p *Page) Recipe() (*recipe.Recipe, bool) {
	left := p.candidates()
	if len(left) == 0 {
		return nil, false
	}
	titles := p.titles()
	for _, fits := range []func(*candidate) bool{
		func(c *candidate) bool { return c.parts > 0 },
		func(c *candidate) bool {
			return slices.ContainsFunc(c.things, func(t thing) bool { return len(t[isMain]) > 0 })
		},
		func(c *candidate) bool { return p.isOwn(c, true) },
		func(c *candidate) bool { return p.isOwn(c, false) },
		func(c *candidate) bool { return c.parts == 2 },
		func(c *candidate) bool { return slices.Contains(titles, c.name) },
		func(c *candidate) bool { return c.isIn(titles...) },
		func(c *candidate) bool { // the longer one of "Soup" and "Lentil soup"
			return !slices.ContainsFunc(left, func(other *candidate) bool { return other != c && c.isIn(other.name) })
		},
	} {
		if fitting := slices.DeleteFunc(slices.Clone(left), func(c *candidate) bool { return !fits(c) }); len(fitting) > 0 {
			left = fitting
		}
	}
	out := p.convert(left[0].things[0])
	if len(left) > 1 && left[0].parts > 0 {
		out.Warnings = append(out.Warnings, recipe.Warning{Code: WarnSeveral, Text: fmt.Sprintf(
			"The page has %d recipes and does not say which it is about; this is the first of them, %q.", len(left), out.Title)})
	}
	return out, true
}

// candidate is a recipe of the page, with all things that describe it: the most complete first.
type candidate struct {
	things []thing
	name   string // as wordsOf returns it
	parts  int    // ingredients and steps: how many of these it has
	lines  int    // of ingredients
}

// maxCandidates bounds the recipes that are compared.
const maxCandidates = 100

// candidates returns the recipes of the page. A recipe that is in the page twice, as JSON-LD and as microdata, is one.
func (p *Page) candidates() (out []*candidate) {
	main := map[string]bool{}
	for _, t := range p.things {
		if len(t[isMain]) > 0 {
			main[t.text("@id")] = true
		}
	}
	for _, t := range p.things {
		if !t.is("Recipe") {
			continue
		}
		if id := t.text("@id"); id != "" && main[id] {
			t[isMain] = []any{id}
		}
		c := &candidate{things: []thing{t}, name: wordsOf(cmp.Or(markup(t.text("name", "headline")), p.Title))}
		c.lines = len(ingredients(t, ""))
		c.parts = min(c.lines, 1) + min(len(steps(t["recipeInstructions"])), 1)
		same := slices.IndexFunc(out, func(o *candidate) bool {
			return o.name == c.name && (o.parts < 2 || c.parts < 2 || o.lines == c.lines)
		})
		switch {
		case same < 0 && len(out) == maxCandidates:
			return out
		case same < 0:
			out = append(out, c)
		case c.parts > out[same].parts:
			c.things = append(c.things, out[same].things...)
			out[same] = c
		default:
			out[same].things = append(out[same].things, t)
		}
	}
	return out
}

// isIn reports whether one of the texts has the name.
func (c *candidate) isIn(texts ...string) bool {
	return c.name != "" && slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(" "+text, " "+c.name) })
}

// titles returns the titles of the page, as wordsOf returns them: of its head, of its articles, and in its addresses.
func (p *Page) titles() (out []string) {
	texts := []string{p.Title, p.heading}
	for _, u := range p.own {
		texts = append(texts, path.Base(u.Path))
	}
	for _, t := range p.things {
		if !t.is("Recipe") && len(texts) < maxCandidates {
			texts = append(texts, t.text("headline"))
		}
	}
	for _, text := range texts {
		out = append(out, wordsOf(text))
	}
	return out
}

// isOwn reports whether a recipe has one of the addresses of the page: with the query, or without it.
func (p *Page) isOwn(c *candidate, query bool) bool {
	for _, t := range c.things {
		for _, value := range slices.Concat(t["url"], t["mainEntityOfPage"], t["@id"]) {
			if reference, ok := value.(thing); ok {
				value = reference.text("@id", "url")
			}
			text, ok := value.(string)
			if u, err := p.address.Parse(text); ok && err == nil && text != "" && text[0] != '#' &&
				slices.ContainsFunc(p.own, func(own *url.URL) bool { return place(u, query) == place(own, query) }) {
				return true
			}
		}
	}
	return false
}

// place returns what names a page in an address: host and path, without www, and the query if wanted.
func place(u *url.URL, query bool) string {
	out := strings.TrimPrefix(strings.ToLower(u.Hostname()), "www.") + strings.TrimRight(u.Path, "/")
	if query {
		out += "?" + u.RawQuery
	}
	return out
}

// convert makes a recipe of a thing. It leaves out optional fields that cannot be read, with a warning.
func (p *Page) convert(t thing) *recipe.Recipe {
	out := &recipe.Recipe{
		Title: markup(t.text("name", "headline")), Description: markup(t.lines("description")), Servings: servings(t),
		Language: cmp.Or(t.text("inLanguage"), p.Language),
	}
	out.Ingredients = ingredients(t, out.Language)
	for i, text := range steps(t["recipeInstructions"]) {
		out.Steps = append(out.Steps, rules.Step(text, out.Language))
		out.Steps[i].Index = i + 1
	}
	var unread []string
	duration := func(to *int, names ...string) {
		text := durationOf(t, names...)
		var ok bool
		if *to, ok = seconds(text, out.Language); !ok && text != "" {
			unread = append(unread, fmt.Sprintf("%s %.40q", names[0], text))
		}
	}
	duration(&out.Times.PrepSec, "prepTime")
	duration(&out.Times.CookSec, "cookTime", "performTime")
	duration(&out.Times.TotalSec, "totalTime")
	if out.Servings == "" && len(t["recipeYield"]) > 0 {
		unread = append(unread, "recipeYield")
	}
	p.details(t, out)
	if p.Author == "" && len(t["author"]) > 0 {
		unread = append(unread, "author")
	}
	if len(unread) > 0 {
		out.Warnings = append(out.Warnings, recipe.Warning{
			Code: extract.WarnField, Text: "The page has fields that cannot be read, and were left out: " + strings.Join(unread, ", ") + ".",
		})
	}
	for _, faults := range t[damaged] {
		out.Warnings = append(out.Warnings, recipe.Warning{
			Code: extract.WarnField,
			Text: "The data of the page is not valid JSON, and what it cannot mean with certainty was left out: " + name(faults) + ".",
		})
	}
	out.Title = cmp.Or(out.Title, p.Title)
	return out
}

// durationOf returns a duration as text, of a range the upper bound.
func durationOf(t thing, names ...string) string {
	for _, name := range names {
		for _, value := range t[name] {
			if of, ok := value.(thing); ok {
				value = of.text("maxValue", "@value", "value", "minValue", "text", "name", "duration")
			}
			if text, ok := value.(string); ok && strings.TrimSpace(text) != "" {
				return oneLine(text)
			}
		}
	}
	return ""
}

// details adds what the page says about the dish.
func (p *Page) details(t thing, r *recipe.Recipe) {
	d := &r.Details
	d.Authors = p.resolve(t, wording, "author", "creator")
	p.Author = cmp.Or(p.Author, strings.Join(d.Authors, ", "), strings.Join(p.resolve(t, wording, "publisher"), ", "))
	d.Categories, d.Cuisines = p.resolve(t, wording, "recipeCategory"), p.resolve(t, wording, "recipeCuisine")
	for _, list := range p.resolve(t, wording, "keywords") {
		for word := range strings.FieldsFuncSeq(list, func(r rune) bool { return strings.ContainsRune(",،、，", r) }) {
			d.Keywords = append(d.Keywords, strings.TrimSpace(word))
		}
	}
	if images := p.resolve(t, p.link, "image", "photo", "thumbnailUrl"); len(images) > 0 {
		d.Image = images[0]
	}
	if videos := p.resolve(t, p.link, "video"); len(videos) > 0 {
		d.Video = videos[0]
	}
	facts := first(t["nutrition"])
	for _, name := range recipe.Nutrients() {
		if len(facts[name]) > 0 && measured(facts[name][0]) != "" {
			if d.Nutrition == nil {
				d.Nutrition = map[string]string{}
			}
			d.Nutrition[name] = measured(facts[name][0])
		}
	}
	aside(t["recipeInstructions"], r)
	for _, value := range t["comment"][:min(len(t["comment"]), maxReferences)] {
		text, by := wording(value), ""
		if comment, ok := value.(thing); ok {
			if by = comment.text("author", "creator"); r.Remark(comment.text("name"), text) {
				p.Remark = text
				continue
			}
		}
		if text != "" && (by == "" || slices.Contains(d.Authors, by)) { // and not a reader's
			d.Notes = append(d.Notes, text)
		}
	}
}

// aside adds the tips among the instructions and the times of the steps that are clips. The tips of a step with a text are a
// part of the text.
func aside(values []any, r *recipe.Recipe) {
	for _, value := range values {
		t, _ := value.(thing)
		text := wording(t)
		switch clip := first(t["video"]); {
		case t.is("HowToTip") && text != "" && len(r.Details.Notes) < maxReferences:
			r.Details.Notes = append(r.Details.Notes, text)
		case text != "" && len(clip["startOffset"]) > 0:
			i := slices.IndexFunc(r.Steps, func(s recipe.Step) bool { return s.Timestamp == nil && strings.HasSuffix(s.Text, text) })
			if i >= 0 {
				r.Steps[i].Timestamp, r.Steps[i].End = offset(clip, "startOffset"), offset(clip, "endOffset")
			}
		case t.text("text") == "":
			aside(t["itemListElement"], r)
		}
	}
}

// wording returns the text of a value, or the name of a thing, in one line.
func wording(value any) string {
	if t, ok := value.(thing); ok {
		value = t.text("text", "name", "@value")
	}
	text, _ := value.(string)
	return oneLine(markup(text))
}

// link returns the address that a value has, or an empty text.
func (p *Page) link(value any) string {
	switch value := value.(type) {
	case string:
		if u, err := p.address.Parse(strings.TrimSpace(value)); err == nil && value != "" && value[0] != '#' {
			return recipe.Address(u.String())
		}
	case thing:
		for _, inner := range slices.Concat(value["contentUrl"], value["url"], value["embedUrl"]) {
			if address := p.link(inner); address != "" {
				return address
			}
		}
	}
	return ""
}

// first returns the first thing of a list.
func first(values []any) thing {
	for _, value := range values {
		if t, ok := value.(thing); ok {
			return t
		}
	}
	return nil
}

// offset returns a number of seconds, or nil.
func offset(t thing, name string) *float64 {
	if at, err := strconv.ParseFloat(t.text(name), 64); err == nil {
		return &at
	}
	return nil
}

// maxReferences is the number of values that are read of one property. One more than may be kept is cut with a warning.
const maxReferences = recipe.MaxWarnings + 1

// resolve returns the texts that read finds in the values of the first property that has any. A value may be a reference to
// another part of the page.
func (p *Page) resolve(t thing, read func(any) string, names ...string) (out []string) {
	for _, property := range names {
		for _, value := range t[property][:min(len(t[property]), maxReferences)] {
			text := read(value)
			if reference, ok := value.(thing); ok && text == "" && len(reference["@id"]) > 0 {
				for _, other := range p.named()[reference.text("@id")] {
					text = cmp.Or(text, read(other))
				}
			}
			if text != "" && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// named returns the parts of the page by their ids, of each id the first few: a page may have many references and many parts.
func (p *Page) named() map[string][]thing {
	const few = 4
	if p.byID == nil {
		p.byID = map[string][]thing{}
		for _, t := range p.things {
			if id := t.text("@id"); id != "" && len(p.byID[id]) < few {
				p.byID[id] = append(p.byID[id], t)
			}
		}
	}
	return p.byID
}

// zeros matches the decimals of a whole number, which programs write: "12.0".
var zeros = lazyregexp.New(`(\d)[.,]0{1,2}(\D|$)`)

// servings returns the yield of the recipe. It prefers a text with words to a number alone.
func servings(t thing) string {
	out := ""
	for _, property := range []string{"recipeYield", "yield"} {
		for _, value := range t[property] {
			text := zeros.ReplaceAllString(measured(value), "$1$2")
			if out == "" || !strings.ContainsFunc(out, unicode.IsLetter) && strings.ContainsFunc(text, unicode.IsLetter) {
				out = text
			}
		}
	}
	return out
}

// measured returns a text or a QuantitativeValue in one line.
func measured(value any) string {
	text := name(value)
	if of, ok := value.(thing); ok {
		text = cmp.Or(quantity(of), text)
	}
	return markup(oneLine(text))
}

// quantity returns a QuantitativeValue as text: "4 servings", "4-6 pieces". It is empty for a thing without values.
func quantity(t thing) string {
	amount := t.text("value", "amount", "quantity")
	if low, high := t.text("minValue"), t.text("maxValue"); amount == "" && low != high && low != "" && high != "" {
		amount = low + "-" + high
	} else if amount == "" {
		amount = cmp.Or(low, high)
	}
	if amount == "" {
		return ""
	}
	return strings.TrimSpace(amount + " " + t.text("unitText", "unit"))
}

func ingredients(t thing, language string) []recipe.Ingredient {
	var out []recipe.Ingredient
	for _, property := range []string{"recipeIngredient", "ingredients"} {
		section := ""
		for _, value := range t[property] {
			supplies(value, language, &section, &out)
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// supplies adds the ingredients of a value: lines of text, a thing with a quantity, or a list with a name, which is a section.
func supplies(value any, language string, section *string, out *[]recipe.Ingredient) {
	text := name(value)
	if t, ok := value.(thing); ok {
		list := slices.Concat(t["itemListElement"], t["recipeIngredient"], t["ingredients"], t["item"])
		if len(list) > 0 {
			if heading := t.text("name"); heading != "" {
				*section = markup(heading)
			}
			for _, item := range list {
				supplies(item, language, section, out)
			}
			return
		}
		text = t.lines("name", "text", "food", "ingredient", "@value", "description")
		amount := quantity(t)
		for _, needed := range t["requiredQuantity"] {
			if of, ok := needed.(thing); ok {
				amount = cmp.Or(amount, quantity(of))
			}
			amount = cmp.Or(amount, oneLine(name(needed)))
		}
		if !strings.HasPrefix(text, amount) {
			text = amount + " " + text
		}
	}
	for line := range strings.Lines(written(text)) {
		if len(*out) > recipe.MaxIngredients {
			return
		}
		if title, ok := rules.Line(line); ok {
			*section = title
		} else if i := rules.Ingredient(line, language); i.Item != "" {
			i.Section = *section
			*out = append(*out, i)
		}
	}
}

// written returns a text without markup, whose bold lines are bold in Markdown.
func written(text string) string { return markup(bold.ReplaceAllString(text, "$1**$2")) }

var bold = lazyregexp.New(`(?i)((?:<(?:b|h\d|strong)\b[^<>]*>\s*)+)|((?:</(?:b|h\d|strong)>\s*)+)`)

// steps returns the steps of a list. A heading, or a section without steps, begins the text of the step after it.
func steps(values []any) []string {
	var parts [][]string
	begin, count := "", 0
	for _, value := range values {
		part, heading := step(value)
		switch {
		case len(part) == 0:
			begin = cmp.Or(heading, begin)
			continue
		case count > recipe.MaxSteps:
			return slices.Concat(parts...)
		}
		titled(part, begin)
		begin, count = "", count+len(part)
		parts = append(parts, part)
	}
	return slices.Concat(once(parts)...)
}

// step returns the steps of a value: a text, a HowToStep, or a list or a HowToSection of them. The name of a step or section
// begins its text. A value without steps may be a heading.
func step(value any) (out []string, heading string) {
	t, ok := value.(thing)
	if !ok {
		return lines(name(value))
	}
	if t.is("HowToTip") {
		return nil, "" // a note
	}
	text := t.lines("text", "description", "@value")
	if text == "" || !t.is("HowToStep") { // directions and tips repeat the text
		out = steps(slices.Concat(t["itemListElement"], t["steps"], t["step"], t["item"]))
	}
	if len(out) == 0 {
		out, heading = lines(text)
	}
	title := markup(t.text("name"))
	switch {
	case len(out) == 0 && t.is("HowToSection") && !strings.HasSuffix(title, "."):
		return nil, cmp.Or(heading, title)
	case len(out) == 0 && heading == "":
		return lines(title)
	case len(out) > 0 && !t.is("ItemList"):
		title, _ = rules.Line(title)
		titled(out, title)
	}
	return out, heading
}

// lines returns a step for each line of a text, and for each numbered part of a line. A text of headings alone is one.
func lines(text string) (out []string, heading string) {
	for line := range strings.Lines(written(text)) {
		for _, part := range rules.Numbered(line) {
			switch text, isHeading := rules.Line(part); {
			case text == "":
			case isHeading:
				heading = strings.TrimPrefix(heading+": "+text, ": ")
			case len(out) > recipe.MaxSteps:
				return out, ""
			default:
				out = append(out, text)
				titled(out[len(out)-1:], heading)
				heading = ""
			}
		}
	}
	if len(out) > 0 && heading != "" {
		return append(out, heading), ""
	}
	return out, heading
}

// titled puts a title before the first of some steps, unless it is a part of their text or the whole of it.
func titled(list []string, title string) {
	short := strings.TrimRightFunc(title, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(".…:", r) })
	key, text := wordsOf(short), wordsOf(list...)
	const cut = 20 // so many bytes are no chance, even where the last word is cut
	switch {
	case strings.HasPrefix(text, key), len(key) > cut && strings.HasPrefix(text, strings.TrimSpace(key)):
	case len(list) == 1 && strings.HasPrefix(key, text):
		list[0] = title
	default:
		list[0] = short + ": " + list[0]
	}
}

// once leaves out what a list says twice: the whole list, or its longest part, which has all others. Of a longest part that
// has more than the others it leaves out the others.
func once(parts [][]string) [][]string {
	if len(parts) < 2 {
		return parts
	}
	key := func(part []string) string { return strings.ReplaceAll(wordsOf(part...), " ", "") }
	count := map[string]int{}
	longest, whole := 0, ""
	for i, part := range parts {
		text := key(part)
		count[text]++
		if len(text) > len(whole) {
			longest, whole = i, text
		}
	}
	times := len(parts) / len(count)
	if times > 1 && !slices.ContainsFunc(parts, func(part []string) bool { return count[key(part)] != times }) {
		return slices.DeleteFunc(parts, func(part []string) bool {
			count[key(part)]--
			return count[key(part)] < times-1
		})
	}
	others := slices.Concat(parts[:longest], parts[longest+1:])
	rest, joined := whole, 0
	for _, part := range others {
		_, after, ok := strings.Cut(rest, key(part))
		if !ok {
			return parts
		}
		joined, rest = joined+len(key(part)), after
	}
	switch {
	case joined == len(whole) && len(parts[longest]) <= len(slices.Concat(others...)):
		return others
	case joined == len(whole), len(others) > 1 && 3*joined >= 2*len(whole):
		return parts[longest : longest+1]
	default:
		return parts
	}
}

// wordsOf returns the words of texts in lower case and without accents, with a space after each.
func wordsOf(texts ...string) string {
	plain := strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, norm.NFKD.String(strings.Join(texts, " ")))
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(plain, func(r rune) bool { return !unicode.In(r, unicode.L, unicode.M, unicode.N) }) {
		b.WriteString(word + " ")
	}
	return b.String()
}

// markup returns a text without tags and entities, which programs put into data, often encoded twice.
func markup(text string) string {
	for range 4 {
		before := text
		if strings.Contains(text, "<") {
			text = plain(strings.ReplaceAll(text, "\n", "<br>"))
		} else {
			text = html.UnescapeString(text)
		}
		if text == before {
			break
		}
	}
	return text
}

// maxDuration bounds the text of a duration, in bytes.
const maxDuration = 200

// isoSizes has the seconds of the units in iso: weeks, days before and after the T, hours, minutes and seconds.
var (
	isoSizes = []float64{7 * 24 * 3600, 24 * 3600, 24 * 3600, 3600, 60, 1}
	iso      = lazyregexp.New(strings.ReplaceAll(`^(?:P\s*(?:0+Y)?(?:0+M)?(?:#W)?(?:#D)?\s*(?:T\s*(?:#D)?|$))?`+
		`(?:#H(?:OU)?R?S?\s*)?(?:#M(?:IN\pL*)?\s*)?(?:#S(?:EC\pL*)?)?$|^0\s*\pL*$`, "#", `(\d[\d.,]{0,11})\s*`))
	clock = lazyregexp.New(`^(\d{1,3}):([0-5]\d)(?::([0-5]\d))?$`)
)

// seconds reads a duration of ISO 8601, such as PT1H30M, in the forms that pages have: any case, spaces, words for units,
// fractions, days after the T. It also reads 1:30, and texts such as 20 minutes. It reports false for any other text, and for
// a duration longer than a recipe may have.
func seconds(text, language string) (int, bool) {
	if len(text) > maxDuration {
		return 0, false
	}
	text = strings.TrimSpace(strings.ToUpper(text))
	if m := clock.FindStringSubmatch(text); m != nil {
		text = "PT" + m[1] + "H" + m[2] + "M0" + m[3] + "S"
	}
	if m := iso.FindStringSubmatch(text); m != nil {
		total := 0.0
		for i := 1; i < len(m); i++ {
			value, err := strconv.ParseFloat(cmp.Or(strings.ReplaceAll(m[i], ",", "."), "0"), 64)
			if total += value * isoSizes[i-1]; err != nil || total > recipe.MaxSeconds {
				return 0, false
			}
		}
		return int(total + 0.5), true
	}
	times := rules.Step(strings.ToLower(text), language).Times
	if strings.HasPrefix(text, "P") || len(times) != 1 || times[0].MaxSec == 0 || times[0].MaxSec > recipe.MaxSeconds ||
		countNumbers(times[0].Raw) != countNumbers(text) {
		return 0, false
	}
	return times[0].MaxSec, true
}

func countNumbers(text string) int {
	return len(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsDigit(r) }))
}
