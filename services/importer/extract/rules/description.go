package rules

import (
	"context"
	_ "embed"
	"regexp"
	"strings"
	"unicode"

	"github.com/expediter-io/expediter/services/importer/extract/internal/lexicon"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Kinds of headings in a description.
const (
	noHeading          = ""
	ingredientsHeading = "ingredients"
	methodHeading      = "method"
	otherHeading       = "other"
)

//go:embed headings.txt
var headingsText string

// headings has the kinds of the words in headings, by word.
var headings = func() map[string]string {
	out := map[string]string{}
	for kind, word := range lexicon.Lists(headingsText) {
		out[word] = kind
	}
	return out
}()

// heading returns the kind of heading of a line.
func heading(line string) string {
	ws := words.Split(words.Plain(line))
	letters := 0
	for _, w := range ws {
		if w.Kind == words.Letters {
			letters++
		}
	}
	if letters == 0 || letters > 7 {
		return noHeading
	}
	colon := strings.HasSuffix(strings.TrimSpace(words.Plain(line)), ":")
	for i, w := range ws {
		kind := headings[w.Lower]
		if kind != noHeading && (letters <= 3 || colon || i == 0 && kind != methodHeading) {
			return kind
		}
	}
	return noHeading
}

var (
	bullets  = regexp.MustCompile(`^[\s\-–—•*·●▪◦‣▢□☐✓✔➤►>+~]+`)
	numbered = regexp.MustCompile(`^(?:step\s*)?\d{1,2}\s*[.):]\s+`)
	stamped  = regexp.MustCompile(`^[(\[]?\d{1,2}:\d{2}(?::\d{2})?\b`)
	address  = regexp.MustCompile(`(?i)https?:|www\.|@\w|\.com\b`)
	servings = regexp.MustCompile(`(?i)\b(?:serves|servings?|yields?|makes|portions?|portionen|raciones|porciones|personen|personnes|` +
		`porzioni|порци\p{L}*)\b\s*(?:is|are|about|approximately|around|for)?\s*[:=-]?\s*(?:about\s+)?(\d+(?:\s*(?:-|–|to)\s*\d+)?` +
		`(?:\s+(?:people|persons?|servings?|portions?|cookies|muffins|pieces|rolls|loaves|loaf|buns|pancakes|bars|cups))?)`)
	portions = regexp.MustCompile(`(?i)\b(\d+(?:\s*(?:-|–|to)\s*\d+)?)\s*(?:servings|portions|people|portionen|personen|personnes|personas|` +
		`raciones|porciones|porzioni|persone|порци\p{L}*)\b`)
	times = regexp.MustCompile(`(?i)\b(prep(?:aration)?|cook(?:ing)?|bak(?:e|ing)|total)\s*time\s*(?:is)?\s*[:=-]?\s*([^|,;]{1,40})`)
)

// readDescription finds the list of ingredients, the method, the servings and the times in the description.
func (r *reader) readDescription(ctx context.Context) error {
	r.facts()
	d := description{}
	for _, line := range r.lines {
		if err := talk.Ended(ctx); err != nil {
			return err
		}
		d.line(line)
	}
	if len(d.listed) < 2 && len(d.loose) >= 3 && (r.english() || inKitchenUnits(d.loose)) {
		d.listed = d.loose
	}
	r.listed, r.instructions = d.listed, d.method
	return nil
}

// description is the state of reading a description line by line.
type description struct {
	mode    string // the kind of the last heading
	section string // the last heading inside the list
	blank   int    // empty lines since the last other line

	listed []recipe.Ingredient
	loose  []recipe.Ingredient // lines with an amount outside all lists
	method []string
}

func (d *description) line(line string) {
	if line == "" {
		d.blank++
		if d.blank > 1 && d.mode == ingredientsHeading && len(d.listed) > 0 {
			d.mode = noHeading
		}
		return
	}
	d.blank = 0
	if kind := heading(line); kind != noHeading {
		d.mode, d.section = kind, ""
		return
	}
	if stamped.MatchString(line) {
		return
	}
	if m := address.FindStringIndex(line); m != nil {
		if d.mode != ingredientsHeading {
			return
		}
		line = withoutOffer(line[:m[0]])
	}
	switch d.mode {
	case methodHeading:
		text := numbered.ReplaceAllString(bullets.ReplaceAllString(line, ""), "")
		if strings.ContainsFunc(text, unicode.IsLetter) {
			d.method = append(d.method, words.Plain(text))
		}
	case ingredientsHeading:
		d.ingredient(line)
	case noHeading:
		if i, ok := ingredientLine(line); ok && len(line) <= maxLine && i.Qty != "" && (i.Unit != "" || isFood(i.Item)) {
			d.loose = append(d.loose, i)
		}
	}
}

// maxLine is the longest line, in bytes, that counts as an ingredient where it may be other text.
const maxLine = 200

// ingredient reads a line of the list. A long line that is no ingredient ends the list.
func (d *description) ingredient(line string) {
	if name, ok := subHeading(line); ok {
		d.section = name
		return
	}
	i, ok := ingredientLine(line)
	switch {
	case ok && len(line) <= maxLine:
		i.Section = d.section
		d.listed = append(d.listed, i)
	case len(strings.Fields(line)) > 12:
		d.mode = noHeading
	}
}

// withoutOffer drops the words between an ingredient and the address of a shop: "- get it at", "(link:".
func withoutOffer(line string) string {
	line = strings.TrimRight(line, " :-(@")
	for _, separator := range []string{" - ", " (", ": ", " | "} {
		if before, _, ok := strings.Cut(line, separator); ok && strings.ContainsFunc(before, unicode.IsLetter) {
			line = before
		}
	}
	return line
}

// subHeading reads "For the dough:" inside a list of ingredients.
func subHeading(line string) (string, bool) {
	plain := strings.TrimSpace(bullets.ReplaceAllString(words.Plain(line), ""))
	if strings.HasSuffix(plain, ":") && len(strings.Fields(plain)) <= 6 {
		return strings.TrimSpace(strings.TrimSuffix(plain, ":")), true
	}
	lower := strings.ToLower(plain)
	for _, prefix := range []string{"for the ", "für ", "para ", "pour "} {
		if strings.HasPrefix(lower, prefix) && len(strings.Fields(plain)) <= 5 {
			return plain, true
		}
	}
	return "", false
}

// facts reads servings and times.
func (r *reader) facts() {
	for _, line := range r.lines {
		plain := words.Plain(line)
		if len(plain) > 400 {
			continue
		}
		if r.recipe.Servings == "" {
			if m := servings.FindStringSubmatch(plain); m != nil {
				r.recipe.Servings = strings.TrimSpace(m[1])
			} else if m := portions.FindStringSubmatch(plain); m != nil {
				r.recipe.Servings = strings.TrimSpace(m[1])
			}
		}
		for _, m := range times.FindAllStringSubmatch(plain, 3) {
			d, used := measure.ReadDuration(words.Split(m[2]), 0)
			if used == 0 {
				continue
			}
			switch strings.ToLower(m[1])[:1] {
			case "p":
				r.recipe.Times.PrepSec = d.Max
			case "c", "b":
				r.recipe.Times.CookSec = d.Max
			case "t":
				r.recipe.Times.TotalSec = d.Max
			}
		}
	}
}

// notes matches the notes after the name of an ingredient.
var notes = regexp.MustCompile(`(?i)\s*[,;]?\s*(?:\((?:` + noteWords + `)\)|\b(?:` + noteWords + `)\b)`)

const noteWords = `to taste|optional|as needed|for (?:serving|garnish|frying|dusting|greasing|the pan)|` +
	`plus (?:more|extra)[^,;)]*|at room temperature|nach geschmack|al gusto|au goût|q\.?b\.?|по вкусу|לפי הטעם`

// ingredientLine reads a line of a list: "2 cups flour, sifted", "Flour - 2 cups", "Salt to taste".
func ingredientLine(line string) (recipe.Ingredient, bool) {
	plain := strings.TrimSpace(bullets.ReplaceAllString(words.Plain(line), ""))
	out := recipe.Ingredient{Raw: plain}
	if plain == "" || strings.HasSuffix(plain, "?") {
		return out, false
	}
	if m := notes.FindStringIndex(plain); m != nil {
		out.Note = strings.Trim(plain[m[0]:m[1]], " ,;()")
		plain = strings.TrimSpace(plain[:m[0]] + plain[m[1]:])
	}
	ws := measure.Split(plain)
	rest := plain
	if a, used := measure.ReadAmount(ws, 0); used > 0 && used < len(ws) {
		setAmount(&out, a)
		rest = plain[ws[used].Start:]
	} else if name, a, ok := amountAtEnd(ws, plain); ok {
		setAmount(&out, a)
		rest = name
	}
	rest, remarks := withoutBrackets(rest)
	for _, remark := range remarks {
		addNote(&out, remark)
	}
	item, note, _ := strings.Cut(rest, ",")
	if strings.TrimSpace(item) == "" {
		item, note = note, ""
	}
	addNote(&out, strings.TrimSpace(note))
	out.Item = strings.Trim(strings.Join(strings.Fields(item), " "), " -:;,.*")
	if len(strings.Fields(out.Item)) > 9 || !strings.ContainsFunc(out.Item, unicode.IsLetter) {
		return out, false
	}
	return out, true
}

// withoutBrackets returns a text without the parts in brackets, and these parts. An opening bracket without a closing
// one ends with the text. A closing bracket without an opening one is dropped.
func withoutBrackets(text string) (outside string, inside []string) {
	var out, in strings.Builder
	depth := 0
	flush := func() {
		if remark := strings.Join(strings.Fields(in.String()), " "); remark != "" {
			inside = append(inside, remark)
		}
		in.Reset()
	}
	for _, r := range text {
		switch {
		case r == '(':
			depth++
			if depth == 1 {
				out.WriteByte(' ')
			} else if in.Len() > 0 {
				in.WriteByte(' ')
			}
		case r == ')' && depth > 0:
			depth--
			if depth == 0 {
				flush()
			}
		case r == ')':
		case depth > 0:
			in.WriteRune(r)
		default:
			out.WriteRune(r)
		}
	}
	flush()
	return out.String(), inside
}

func addNote(i *recipe.Ingredient, note string) {
	note = strings.Trim(note, " ,;.-")
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

// amountAtEnd reads "Flour - 2 cups", "Salt: a pinch", and, for a name in other than Latin letters, "面粉250克".
func amountAtEnd(ws []words.Word, text string) (name string, a measure.Amount, ok bool) {
	for i := 1; i < len(ws); i++ {
		from := i
		switch {
		case ws[i].Lower == "-" || ws[i].Lower == ":" || ws[i].Lower == "=":
			from++
		case strings.ContainsFunc(ws[i-1].Text, func(r rune) bool { return !unicode.In(r, unicode.Latin, unicode.Common) }):
		default:
			continue
		}
		if a, used := measure.ReadAmount(ws, from); used > 0 && from+used == len(ws) {
			return text[:ws[i].Start], a, true
		}
	}
	return "", measure.Amount{}, false
}

// isFood reports whether a text names a food.
func isFood(text string) bool { return holdsFood(words.Stems(words.Split(words.Plain(text)))) }

func holdsFood(stems []string) bool {
	for i := range stems {
		if used, dependent := lexicon.Food(stems, i); used > 0 && !dependent {
			return true
		}
	}
	return false
}
