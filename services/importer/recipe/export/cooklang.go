package export

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Cooklang returns a recipe as a .cook file: YAML front matter with the canonical names, notes for the reader, and a
// paragraph for each step, by the specification at https://github.com/cooklang/spec.
//
// An ingredient is marked up where a step first names it, in the words of the step. Ingredients that no step names are
// in a paragraph before the steps. Times in the text of a step become timers. A step ends in a comment with its time in
// the video, "[- 120s -]".
func Cooklang(r *recipe.Recipe) []byte {
	var b strings.Builder
	frontMatter(&b, r)
	for _, text := range remarks(r) {
		b.WriteString("\n> " + escape(text, `\`) + "\n")
	}
	drafts := make([]*draft, len(r.Steps))
	for i := range r.Steps {
		drafts[i] = newDraft(r.Steps[i].Text)
	}
	if rest := placeIngredients(drafts, r.Ingredients); len(rest) > 0 {
		b.WriteString("\n" + strings.Join(rest, ", ") + "\n")
	}
	for i, d := range drafts {
		if d.text == "" {
			continue
		}
		placeTimers(d, r.Steps[i].Times)
		b.WriteString("\n" + d.String())
		if at := r.Steps[i].Timestamp; at != nil {
			b.WriteString(" [- " + strconv.FormatFloat(*at, 'f', -1, 64) + "s -]")
		}
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

func frontMatter(b *strings.Builder, r *recipe.Recipe) {
	b.WriteString("---\n")
	for _, entry := range [][2]string{
		{"title", line(r.Title)},
		{"description", r.Description},
		{"servings", line(r.Servings)},
		{"prep time", clock(r.Times.PrepSec)},
		{"cook time", clock(r.Times.CookSec)},
		{"time required", clock(r.Times.TotalSec)},
		{"locale", locale(r.Language)},
		{"source", line(r.Source.Ref)},
	} {
		if entry[1] != "" {
			b.WriteString(entry[0] + ": " + yaml(entry[1]) + "\n")
		}
	}
	b.WriteString("---\n")
}

// clock returns a time in the form of the conventions, "1h30m", and "" for 0.
func clock(seconds int) string {
	if seconds <= 0 {
		return ""
	}
	text := (time.Duration(seconds) * time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// locale returns a language tag in the form of the conventions, "pt_BR".
func locale(tag string) string {
	t, err := language.Parse(tag)
	if tag == "" || err != nil {
		return ""
	}
	base, _ := t.Base()
	if region, known := t.Region(); known == language.Exact {
		return base.String() + "_" + region.String()
	}
	return base.String()
}

// placeIngredients marks each ingredient where a step first names it, the longest names first, so that "oil" does not take
// the place of "olive oil". It returns the markup of the other ingredients in the order of the list.
func placeIngredients(drafts []*draft, ingredients []recipe.Ingredient) []string {
	order := make([]int, len(ingredients))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(ingredients[b].Item), len(ingredients[a].Item)) })
	placed := make([]bool, len(ingredients))
	for _, i := range order {
		item := line(ingredients[i].Item)
		folded := fold(item)
		for _, d := range drafts {
			if at := d.mention(folded); at >= 0 {
				end := at + len(folded)
				d.replace(at, end, ingredientMarkup(d.text[at:end], &ingredients[i]))
				placed[i] = true
				break
			}
		}
	}
	var rest []string
	for i := range ingredients {
		if item := line(ingredients[i].Item); !placed[i] && item != "" {
			rest = append(rest, ingredientMarkup(item, &ingredients[i]))
		}
	}
	return rest
}

// ingredientMarkup returns "@name{qty%unit}(note)". It escapes characters with a meaning at the beginning of a name:
// modifiers, and the beginning of a path to another recipe.
func ingredientMarkup(name string, i *recipe.Ingredient) string {
	qty, unit, note := escape(line(string(i.Qty)), inAmount), escape(line(i.Unit), inAmount), escape(line(i.Note), inNote)
	if unit != "" {
		qty = cmp.Or(qty, "some") + "%" + unit
	}
	out := "@" + escapeFirst(escape(name, inName), "./?+-&=") + "{" + qty + "}"
	if note != "" {
		out += "(" + note + ")"
	}
	return out
}

// placeTimers marks the times of a step in its text, at the words from which they were read.
func placeTimers(d *draft, times []recipe.Duration) {
	for _, t := range times {
		folded := fold(line(t.Raw))
		if t.MaxSec <= 0 || t.MaxSec < t.MinSec || folded == "" {
			continue
		}
		if at := d.mention(folded); at >= 0 {
			d.replace(at, at+len(folded), timer(t.MinSec, t.MaxSec))
		}
	}
}

// timer returns "~{10-12%minutes}", in the largest unit in which both bounds are whole.
func timer(low, high int) string {
	size, unit := 1, "seconds"
	switch {
	case low%3600 == 0 && high%3600 == 0:
		size, unit = 3600, "hours"
	case low%60 == 0 && high%60 == 0:
		size, unit = 60, "minutes"
	}
	if low == high || low <= 0 {
		return fmt.Sprintf("~{%d%%%s}", high/size, unit)
	}
	return fmt.Sprintf("~{%d-%d%%%s}", low/size, high/size, unit)
}

// line returns a text as one line, without invisible characters.
func line(text string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))), " ")
}

// Characters with a meaning in Cooklang, by their place. A backslash takes the meaning away.
const (
	inText   = `\@#~`
	inName   = `\@#~{}|%()`
	inAmount = `\{}%|*=`
	inNote   = `\()`
)

// escape puts a backslash before special characters, and before the begin of a comment: "--" and "[-".
func escape(text, special string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		next := byte(0)
		if i+1 < len(text) {
			next = text[i+1]
		}
		if strings.IndexByte(special, c) >= 0 || (c == '-' || c == '[') && next == '-' {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// escapeFirst puts a backslash before the first character if it is one of the special characters.
func escapeFirst(text, special string) string {
	if text != "" && strings.IndexByte(special, text[0]) >= 0 {
		return `\` + text
	}
	return text
}

var (
	// plainScalar matches text that needs no quotes in YAML, apart from keywords.
	plainScalar = regexp.MustCompile(`^\p{L}([\p{L}\p{N} ,'()/&!._-]*[\p{L}\p{N})!.])?$`)
	plainNumber = regexp.MustCompile(`^[1-9][0-9]{0,5}( \p{L}+|[hms]|h[0-9]+[ms]|m[0-9]+s|h[0-9]+m[0-9]+s)?$`)
	plainURL    = regexp.MustCompile(`^https?://[[:graph:]]*[0-9A-Za-z/_=-]$`)
	keywords    = regexp.MustCompile(`(?i)^(true|false|null|yes|no|on|off|y|n)$`)
)

// yaml returns a text as a YAML scalar on one line: unchanged where that is safe, for the sake of simple readers, and
// otherwise in double quotes. YAML has all escapes of Go.
func yaml(text string) string {
	if plainScalar.MatchString(text) && !keywords.MatchString(text) || plainNumber.MatchString(text) || plainURL.MatchString(text) {
		return text
	}
	return strconv.Quote(strings.ToValidUTF8(text, ""))
}
