// Package name takes the names of venues apart and compares them.
package name

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
	"github.com/expediter-io/expediter/services/enricher/match/internal/token"
)

// maxVariants bounds the forms of one name that are compared.
const maxVariants = 6

// Name is a name in every form in which it may be meant.
type Name struct {
	// Variants starts with the whole name; others are alternative names and the parts in each script.
	Variants []Variant
}

// Variant is one form of a name.
type Variant struct {
	Tokens []token.Token
	Words  []Word // of the same length
	// Script is the script of the telling words.
	Script text.Script
	// Joined is the telling words without spaces, and Row their sounds.
	Joined []rune
	Row    token.Row
	// Whole has the sounds of all words but the stop words. Said has the sounds of all words when the first is a stop
	// word, and is Row otherwise.
	Whole   token.Row
	Said    token.Row
	telling bool // has a distinctive word
}

// Word is the weight of a word, and the reasons for it.
type Word struct {
	Kind   lexicon.Kind
	Weight float64
	// Qualifier reports whether the word stands in parentheses or after a dash: it may name a branch.
	Qualifier bool
	// Local reports whether the word is part of the venue's own address or city.
	Local bool
	// Number is the value of a word of digits.
	Number string
}

// The weights of qualifiers and words of the own address, relative to the name itself.
const (
	qualifierWorth = 0.5
	localWorth     = 0.35
)

// Parse takes a name and its aliases apart. local has the words of the venue's own address and city.
func Parse(name string, aliases []string, local []string) Name {
	var n Name
	for _, p := range split(text.Fold(name)) {
		n.add(p, local)
	}
	for _, alias := range aliases {
		for _, p := range split(text.Fold(alias)) {
			n.add(p, local)
		}
	}
	return n
}

func (n *Name) add(parts []part, local []string) {
	if len(n.Variants) >= maxVariants {
		return
	}
	var entries []entry
	for _, p := range parts {
		for _, w := range text.Words(p.text) {
			if len(entries) < token.Limit {
				entries = append(entries, entry{word: w, qualifier: p.qualifier})
			}
		}
	}
	if len(entries) == 0 {
		return
	}
	if first := &entries[0].word; first.Text == "sta" { // "Sta. Maria"; behind other words it is a station
		first.Text, first.Raw = "santa", "santa"
	}
	v := weigh(entries, local)
	n.Variants = append(n.Variants, v)
	scripts := v.scripts()
	if len(scripts) < 2 {
		return
	}
	for _, s := range scripts {
		if len(n.Variants) < maxVariants {
			n.Variants = append(n.Variants, weigh(inScript(entries, s), local))
		}
	}
}

// entry is a word on its way into a variant.
type entry struct {
	word      text.Word
	qualifier bool
}

// inScript keeps the words of one script and the numbers. A bilingual name has its second form after a dash or in
// parentheses, so when only qualifiers are left, they are the name.
func inScript(entries []entry, s text.Script) []entry {
	var out []entry
	all := true
	for _, e := range entries {
		if e.word.Script == s || e.word.Script == text.None {
			out = append(out, e)
			all = all && (e.qualifier || e.word.Script == text.None)
		}
	}
	for i := range out {
		out[i].qualifier = out[i].qualifier && !all
	}
	return out
}

// weigh looks the words up and gives each its weight.
func weigh(entries []entry, local []string) Variant {
	var v Variant
	for i := 0; i < len(entries); i++ {
		w, e := entries[i].word, entries[i]
		if i+1 < len(entries) && phrase(w, entries[i+1].word) {
			w.Text += entries[i+1].word.Text
			w.Raw = w.Text
			i++
		}
		city, _ := lexicon.City(w.Text)
		info := Word{Qualifier: e.qualifier, Local: slices.Contains(local, w.Text) || slices.Contains(local, city)}
		known, found := lexicon.Name(w.Text)
		concept := ""
		if found = found && (i > 0 || known.Concept != "and"); found { // "Va Bene"
			info.Kind, concept = known.Kind, known.Concept
		}
		if value, ok := lexicon.Number(w.Text); ok && !found {
			if i+1 < len(entries) {
				if unit, ok := lexicon.Number(entries[i+1].word.Text); ok && len(value) == 2 && value[1] == '0' && len(unit) == 1 {
					value = value[:1] + unit
					w.Text += entries[i+1].word.Text
					w.Raw = w.Text
					i++
				}
			}
			concept = "#" + value
		} else if value, ok := lexicon.Ordinal(w.Text); ok && !found {
			concept = "#" + value
		} else if text.IsNumber(w.Text) {
			info.Number = strings.TrimLeft(w.Text, "0")
			concept = "#" + info.Number
		}
		t := token.New(w, concept)
		if i > 0 && and(w) {
			t.Row.Sounds[0] = t.Row.Sounds[0].Optional()
			t.Row = token.NewRow(t.Row.Sounds)
		}
		v.Tokens = append(v.Tokens, t)
		v.Words = append(v.Words, info)
	}
	v.settle()
	return v
}

// and reports whether a word may begin with the word for "and", which Hebrew and Arabic attach to the next word.
func and(w text.Word) bool {
	letter := map[text.Script]string{text.Hebrew: "ו", text.Arabic: "و"}[w.Script]
	return letter != "" && strings.HasPrefix(w.Text, letter) && len(w.Text) > 3*len(letter)
}

// phrase reports whether two words are one in the tables: "ice cream", "coffee house".
func phrase(a, b text.Word) bool {
	if len(a.Text) < 3 || len(b.Text) < 3 {
		return false
	}
	_, ok := lexicon.Name(a.Text + b.Text)
	return ok
}

// settle computes weights, script and joined form once all words are known. When a name has only common words, these
// distinguish it, so they count for more.
func (v *Variant) settle() {
	counts := [text.Other + 1]float64{}
	for i := range v.Words {
		w := &v.Words[i]
		if w.Kind == lexicon.Distinctive && !w.Local && !w.Qualifier {
			v.telling = true
		}
	}
	for i := range v.Words {
		w := &v.Words[i]
		w.Weight = w.Kind.Weight()
		if w.Kind == lexicon.Distinctive && len(v.Tokens[i].Runes) == 1 && v.Tokens[i].Script != text.Other {
			w.Weight = 0.5
		}
		switch {
		case !v.telling && w.Kind != lexicon.Distinctive && w.Kind != lexicon.Stop:
			w.Weight += 0.35
		case v.telling && w.Local:
			w.Weight = min(w.Weight, localWorth)
		case v.telling && w.Qualifier:
			w.Weight *= qualifierWorth
		}
		counts[v.Tokens[i].Script] += w.Weight
	}
	for s := text.Latin; s <= text.Other; s++ {
		if counts[s] > counts[v.Script] || v.Script == text.None && counts[s] > 0 {
			v.Script = s
		}
	}
	v.join()
}

// join concatenates the telling words, or all but the stop words when the name has no telling word.
func (v *Variant) join() {
	keep := func(i int) bool {
		w := v.Words[i]
		return w.Kind <= lexicon.Food && !w.Qualifier && !w.Local && (w.Kind == lexicon.Distinctive || !v.telling)
	}
	var whole []token.Sound
	for i := range v.Tokens {
		if v.spoken(i) {
			whole = append(whole, v.sounds(i)...)
		}
	}
	v.Whole = token.NewRow(whole)
	for _, rule := range []func(int) bool{keep, func(i int) bool { return v.Words[i].Kind != lexicon.Stop }, func(int) bool { return true }} {
		var sounds []token.Sound
		for i, t := range v.Tokens {
			switch {
			case rule(i):
				v.Joined = append(v.Joined, t.Runes...)
				sounds = append(sounds, v.sounds(i)...)
			case len(sounds) > 0 && v.spoken(i) && v.Words[i].Kind == lexicon.Stop:
				sounds = append(sounds, v.sounds(i)...)
			}
		}
		if len(v.Joined) > 0 {
			v.Row = token.NewRow(sounds)
			v.Said = v.said()
			return
		}
	}
}

// said returns the sounds of all words when the first is a stop word. One source attaches an article to its word ("Almarai") and
// another does not, and the Arabic article sounds like the consonant after it ("Annahar").
func (v *Variant) said() token.Row {
	if !v.opens() {
		return v.Row
	}
	var sounds []token.Sound
	for i := range v.Tokens {
		sounds = append(sounds, v.sounds(i)...)
	}
	return token.NewRow(sounds)
}

// opens reports whether the name begins with a stop word, such as an article.
func (v *Variant) opens() bool { return v.Words[0].Kind == lexicon.Stop }

// sounds returns the sounds of a word within a name.
func (v *Variant) sounds(i int) []token.Sound {
	sounds := slices.Clone(v.Tokens[i].Row.Sounds)
	if v.Tokens[i].Script == text.Arabic && v.Tokens[i].Concept == article {
		for j := range sounds {
			sounds[j] = sounds[j].Optional()
		}
	}
	return sounds
}

// spoken reports whether a word is part of the name spoken as one word: any word but a stop word, and an article
// inside the name ("Fakhr al-Din" is Fakhreldin).
func (v *Variant) spoken(i int) bool {
	return v.Words[i].Kind != lexicon.Stop || i > 0 && i+1 < len(v.Tokens) && v.Tokens[i].Concept == article
}

// article is the concept of articles in the tables.
const article = "the"

// scripts returns the scripts of the words other than stop words.
func (v *Variant) scripts() []text.Script {
	var out []text.Script
	for i := range v.Tokens {
		if s := v.Tokens[i].Script; s != text.None && v.Words[i].Kind != lexicon.Stop && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// part is a piece of a name; a qualifier stands in parentheses, after a dash or after "at".
type part struct {
	text      string
	qualifier bool
}

// aka are words that introduce another name of the same venue.
var aka = []string{
	"aka ", "a.k.a. ", "a/k/a ", "dba ", "d/b/a ", "formerly ", "fka ", "f/k/a ", "ex ", "ex-", "also known as ",
	"vormals ", "anciennement ", "לשעבר ", "бывш. ", "πρωην ",
}

// split returns the names in a folded text, each in parts: first the whole text, then each alternative name in it.
func split(folded string) [][]part {
	base, asides := parentheses(folded)
	for _, a := range aka {
		if main, other, ok := strings.Cut(base, " "+a); ok && len(a) > 3 {
			base, asides = main, append(asides, a+other)
		}
	}
	parts := dashes(base)
	if len(parts) == 0 {
		parts = dashes(strings.Join(asides, " "))
		asides = nil
	}
	var others [][]part
	for _, a := range asides {
		if other, ok := alternative(a); ok {
			others = append(others, dashes(other))
			continue
		}
		parts = append(parts, part{text: a, qualifier: true})
	}
	kept := parts[:0]
	for i, p := range parts {
		if other, ok := alternative(p.text); ok && i > 0 {
			others = append(others, []part{{text: other}})
			continue
		}
		kept = append(kept, p)
	}
	return append([][]part{kept}, others...)
}

func alternative(s string) (string, bool) {
	s = strings.TrimSpace(s)
	for _, a := range aka {
		if rest, ok := strings.CutPrefix(s, a); ok {
			return rest, true
		}
	}
	return "", false
}

// parentheses separates a text from its bracketed parts. A bracket that is not closed ends with the text.
func parentheses(s string) (base string, asides []string) {
	if !strings.ContainsAny(s, "([{") {
		return s, nil
	}
	var b strings.Builder
	for s != "" {
		open := strings.IndexAny(s, "([{")
		if open < 0 {
			break
		}
		b.WriteString(s[:open])
		b.WriteByte(' ')
		s = s[open+1:]
		end := strings.IndexAny(s, ")]}")
		if end < 0 {
			end = len(s)
		}
		if aside := strings.TrimSpace(s[:end]); aside != "" {
			asides = append(asides, aside)
		}
		s = s[min(end+1, len(s)):]
	}
	b.WriteString(s)
	return strings.TrimSpace(b.String()), asides
}

// dashes splits a text at its dashes, bars, slashes, colons and commas, and at "at"; the parts behind the first qualify it.
func dashes(s string) []part {
	var parts []part
	add := func(t string) {
		if strings.IndexFunc(t, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) >= 0 {
			parts = append(parts, part{text: t, qualifier: len(parts) > 0})
		}
	}
	for {
		at, n := separator(s)
		if at < 0 {
			add(s)
			return parts
		}
		add(s[:at])
		s = s[at+n:]
	}
}

// separator finds the first separator of a name and its length. A dash needs a space beside it: "bel-air" is one name.
func separator(s string) (at, n int) {
	for i, r := range s {
		switch r {
		case '|', ';', ':', '@', '~', '>', '/':
			return i, 1
		case ',':
			if i+1 < len(s) && s[i+1] == ' ' || i+1 == len(s) {
				return i, 1
			}
		case '-':
			before, _ := utf8.DecodeLastRuneInString(s[:i])
			after, _ := utf8.DecodeRuneInString(s[i+1:])
			if before == ' ' || after == ' ' {
				return i, 1
			}
		case ' ':
			if i > 0 && strings.HasPrefix(s[i:], " at ") {
				return i, len(" at ")
			}
		}
	}
	return -1, 0
}
