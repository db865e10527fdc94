package match

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/services/enricher/match/internal/address"
	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/name"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
	"github.com/expediter-io/expediter/services/enricher/match/internal/token"
)

// Outcome is the outcome of a decision.
type Outcome string

// The outcomes. A fourth, ERROR, belongs to the caller whose provider did not answer.
const (
	// Found means that one candidate is the place.
	Found Outcome = "FOUND"
	// NotFound means that no candidate is the place.
	NotFound Outcome = "NOT_FOUND"
	// Ambiguous means that a candidate may be the place, or that two are about as likely: a person, or more evidence,
	// has to tell.
	Ambiguous Outcome = "AMBIGUOUS"
)

// The thresholds of a decision.
const (
	// FoundScore is the least score of a candidate that is found.
	FoundScore = 0.8
	// NotFoundScore is the score below which a candidate is not the place.
	NotFoundScore = 0.2
	// FoundMargin is the least margin to the second candidate: odds of four to one.
	FoundMargin = 0.6
)

// Decision is the outcome of looking for a place among candidates.
type Decision struct {
	// Outcome is the outcome.
	Outcome Outcome `json:"outcome"`
	// Index is the index of the best candidate, or -1 when there was none. It is set whatever the outcome.
	Index int `json:"index"`
	// Rival is the index of the likeliest other candidate that is not evidently the same venue, or -1.
	Rival int `json:"rival"`
	// Score is the score of the best candidate.
	Score float64 `json:"score"`
	// Margin is the lead of the best candidate over the rival, in [0,1]: the difference of their odds divided by the
	// sum. It is 0 when both are equally likely, and 1 without a rival.
	Margin float64 `json:"margin"`
	// Evidence is the evidence for the best candidate.
	Evidence Evidence `json:"evidence"`
}

// Prepared is a place taken apart once, so that comparing it with many others is cheap. It is read-only and may be shared
// between goroutines.
type Prepared struct {
	// Place is the place as given.
	Place Place

	address address.Address
	city    address.City
	local   []string
	name    name.Name
	phones  []phoneNumber
}

// Compare returns the evidence that two places are one venue. It is symmetric and deterministic.
func Compare(a, b Place) Evidence { return Prepare(a).Compare(Prepare(b)) }

// Compare returns the evidence that two places are one venue. It is symmetric.
func (p *Prepared) Compare(q *Prepared) Evidence {
	v := observe(p, q)
	return v.explain()
}

// Best looks for a place among candidates. See Prepared.Best.
func Best(query Place, candidates []Place) Decision {
	prepared := make([]*Prepared, len(candidates))
	for i, c := range candidates {
		prepared[i] = Prepare(c)
	}
	return Prepare(query).Best(prepared)
}

// Best looks for the place among candidates. It compares the place with each, and takes the likeliest when its score
// reaches FoundScore and no rival comes near. Candidates that are evidently the same venue as the best are no rivals,
// so a catalogue that lists a venue twice still answers. Best takes the first of equal candidates.
func (p *Prepared) Best(candidates []*Prepared) Decision {
	if len(candidates) == 0 {
		return Decision{Outcome: NotFound, Index: -1, Rival: -1, Margin: 1, Evidence: Evidence{Model: ModelVersion, Features: nil}}
	}
	odds := make([]float64, len(candidates))
	var winner vector
	best := -1
	for i, c := range candidates {
		v := observe(p, c)
		odds[i] = v.logOdds()
		if v.reached() { // undecided, so likelier than what is not the place
			odds[i] = max(odds[i], math.Log(NotFoundScore/(1-NotFoundScore)))
		}
		if best < 0 || odds[i] > odds[best] {
			best, winner = i, v
		}
	}
	d := Decision{Index: best, Rival: -1, Margin: 1, Evidence: winner.explain()}
	d.Score = d.Evidence.Score
	if d.Score >= NotFoundScore {
		d.rival(candidates, odds)
	}
	switch {
	case d.Score < NotFoundScore && !winner.reached():
		d.Outcome = NotFound
	case d.Score < FoundScore || d.Margin < FoundMargin:
		d.Outcome = Ambiguous
	default:
		d.Outcome = Found
	}
	return d
}

// reached reports whether both places have a telephone number in common and nothing shows that their names, in different
// scripts, belong to two venues: one may translate the other, or be another name of the brand.
func (v *vector) reached() bool {
	return v[phoneSame] == 1 && v[nameCross]+v[nameUnknown] > 0 && v[nameKindsDiffer] == 0 && v[nameNumbersDiffer] == 0 &&
		v[cityDiffers] == 0 && v[geoFar] == 0 && v[geoQuarter] == 0 && v[addressOther] < 0.9
}

// rival finds the likeliest other venue and the margin to it. It compares only candidates with the best whose odds
// are near enough to matter.
func (d *Decision) rival(candidates []*Prepared, odds []float64) {
	for i, o := range odds {
		if i == d.Index || d.Rival >= 0 && o <= odds[d.Rival] || margin(odds[d.Index], o) > 0.999 {
			continue
		}
		if sameVenue(candidates[d.Index], candidates[i]) {
			continue
		}
		d.Rival = i
		d.Margin = round(margin(odds[d.Index], o))
	}
}

// margin is (a-b)/(a+b) for odds whose logarithms are given.
func margin(a, b float64) float64 { return math.Tanh((a - b) / 2) }

// sameVenue reports whether two candidates are evidently one venue, by the score and by the address, the telephone or
// the location.
func sameVenue(a, b *Prepared) bool {
	v := observe(a, b)
	placed := v[addressSame] > 0.9 || v[phoneSame] > 0 || v[geoSpot] > 0
	return placed && v[addressOther] < 0.5 && v[addressNumberDiffers] == 0 && v[branchDiffers] == 0 && v.score() >= 0.95
}

// Contradict reports whether two descriptions cannot be of one place: their names are not two spellings of one name, or their
// addresses, cities, telephone numbers or locations differ. A field that only one description has does not count. It is
// symmetric.
func Contradict(a, b *Prepared) bool {
	v := observe(a, b)
	for _, f := range []feature{
		addressOther, addressNumberDiffers, addressOpposite, addressTypesDiffer, nameFoodsDiffer, nameRivals, branchDiffers,
		cityDiffers, geoFar, geoFarSameAddress, geoQuarter, phoneDiffers,
	} {
		if v[f] > 0.5 {
			return true
		}
	}
	if v[nameExact] == 1 {
		return false
	}
	names := vector{citySame: 1, strangers: v[strangers]}
	copy(names[:nameAlone], v[:nameAlone])
	return v[nameUnknown] == 1 || names.score() < 0.5
}

// ModelVersion names the version of the features and weights. A result of another version should be matched again.
const ModelVersion = "places-6"

// Evidence has the observations behind a score. It is small as JSON and one line as a string.
type Evidence struct {
	// Model is the ModelVersion of the score.
	Model string `json:"model"`
	// Score is the probability that the places are one venue, in [0,1].
	Score float64 `json:"score"`
	// Base is the log-odds of a match before any observation.
	Base float64 `json:"base"`
	// Features are the observations that were made, in a fixed order.
	Features []Feature `json:"features"`
}

// Feature is one observation and its effect on the score.
type Feature struct {
	// Name is the name of the observation, for example "phone.same".
	Name string `json:"name"`
	// Value is the strength of the observation, in (0,1].
	Value float64 `json:"value"`
	// Contribution is the observation's term in the log-odds. A positive term is evidence for a match.
	Contribution float64 `json:"contribution"`
}

// String returns the evidence as one readable line: the score, the base and each observation with its contribution.
func (e Evidence) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%.3f = base %.2f", e.Score, e.Base)
	for _, f := range e.Features {
		b.WriteString(", " + f.Name)
		if f.Value != 1 {
			fmt.Fprintf(&b, " %.2f", f.Value)
		}
		fmt.Fprintf(&b, " %+.2f", f.Contribution)
	}
	return b.String()
}

// explain turns a vector into evidence.
func (v *vector) explain() Evidence {
	e := Evidence{Model: ModelVersion, Score: round(v.score()), Base: round(base)}
	for i, x := range v {
		if x != 0 {
			e.Features = append(e.Features, Feature{Name: featureNames[i], Value: round(x), Contribution: round(x * weights[i])})
		}
	}
	return e
}

// logOdds returns the log-odds of a match.
func (v *vector) logOdds() float64 {
	sum := base
	for i, x := range v {
		sum += x * weights[i]
	}
	return sum
}

// score returns the probability of a match.
func (v *vector) score() float64 { return 1 / (1 + math.Exp(-v.logOdds())) }

// round keeps four decimals, which is more than anyone reads and keeps the stored form small.
func round(x float64) float64 { return math.Round(x*1e4) / 1e4 }

// Prepare takes a place apart. It costs some tens of microseconds and allocates.
func Prepare(p Place) *Prepared {
	c := address.ParseCity(p.City)
	a := address.Parse(p.Address, c.Words)
	q := &Prepared{Place: p, address: a, city: c, phones: parsePhones(p.Phone)}
	q.local = appendNew(appendNew(appendNew(nil, c.Words...), c.Canonical), a.Words...)
	q.name = name.Parse(p.Name, p.Aliases, q.local)
	return q
}

// after reports whether p comes after q in a fixed order. Comparing pairs in this order makes the comparison
// symmetric.
func (p *Prepared) after(q *Prepared) bool {
	a, b := &p.Place, &q.Place
	return cmp.Or(
		strings.Compare(a.Name, b.Name), strings.Compare(a.Address, b.Address), strings.Compare(a.City, b.City),
		strings.Compare(a.Phone, b.Phone), slices.Compare(a.Aliases, b.Aliases)) > 0
}

func appendNew(to []string, list ...string) []string {
	for _, s := range list {
		if s != "" && !slices.Contains(to, s) {
			to = append(to, s)
		}
	}
	return to
}

// Place describes a venue. Every field may be empty: a missing field counts neither for nor against a match. Only the
// first 512 bytes of a text field are read.
type Place struct {
	// Address is the street address in any order, with or without postcode, city and country.
	Address string `json:"address,omitempty"`
	// Aliases are other names of the venue, in any script.
	Aliases []string `json:"aliases,omitempty"`
	// City is the name of the city in any language.
	City string `json:"city,omitempty"`
	// Location is the position of the venue; nil when it is not known.
	Location *Point `json:"location,omitempty"`
	// Name is the name as the source writes it.
	Name string `json:"name"`
	// Phone is one or more telephone numbers as the source writes them.
	Phone string `json:"phone,omitempty"`
}

// Point is a place on the earth in degrees, WGS 84.
type Point struct {
	// Lat is the latitude in [-90,90].
	Lat float64 `json:"lat"`
	// Lng is the longitude in [-180,180].
	Lng float64 `json:"lng"`
}

// maxNumbers bounds the numbers read from one field.
const maxNumbers = 4

// The lengths of numbers: shorter ones are short codes, longer ones not numbers at all.
const (
	minDigits   = 6
	maxDigits   = 15
	localDigits = 7 // fewer than a national number has in most countries
)

// phoneNumber is the digits of a telephone number without prefixes. Two numbers are the same when one ends in the digits of the other,
// without international prefixes, trunk zeros and extensions. A national number is the end of the international one in every numbering
// plan, except where the trunk prefix is not a zero; these plans are listed in trunks.
type phoneNumber struct {
	digits string
	brand  bool // see lexicon.BrandNumber
}

// Key is the end of the number: numbers that are the same have the same key.
func (n phoneNumber) Key() string {
	return n.digits[max(0, len(n.digits)-minDigits):]
}

// parsePhones returns the numbers in a field, which may list several.
func parsePhones(field string) []phoneNumber {
	var out []phoneNumber
	field = text.Fold(field)
	for _, star := range stars.FindAllString(field, maxNumbers) {
		out = append(out, phoneNumber{digits: "*" + digits(star), brand: true})
	}
	for _, part := range splitPhones(stars.ReplaceAllString(field, ";")) {
		if n := cleanPhone(part); n.digits != "" && len(out) < maxNumbers {
			out = append(out, n)
		}
	}
	return out
}

// stars are the short numbers of Israeli brands: "*2222", or "2222*" where the star was written first.
var stars = lazyregexp.New(`\* ?-?[0-9]{3,5}\b|\b[0-9]{3,5}\*`)

// splitPhones cuts a field at words and separators between numbers, and drops extensions. A slash separates numbers only when
// there are enough digits on both sides: "310/652-4025" is one number.
func splitPhones(s string) []string {
	var parts []string
	for _, p := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' || r == '|' || r == '&' }) {
		for _, q := range byWords(p) {
			parts = append(parts, bySlash(q)...)
		}
	}
	return parts
}

// byWords cuts at letters; an extension, behind "ext", "x" and the like, is not a number.
func byWords(s string) []string {
	var parts []string
	for s != "" {
		number, rest := splitAt(s, unicode.IsLetter)
		word, after := splitAt(rest, func(r rune) bool { return !unicode.IsLetter(r) && r != '.' })
		if slices.Contains(extensions, strings.Trim(word, ".")) {
			after = strings.TrimLeft(after, " .:#0123456789")
		}
		parts, s = append(parts, number), after
	}
	return parts
}

// splitAt splits a text before the first rune for which at is true.
func splitAt(s string, at func(rune) bool) (head, rest string) {
	if i := strings.IndexFunc(s, at); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

var extensions = []string{"x", "ext", "extn", "extension", "poste", "durchwahl", "app", "int", "interno", "שלוחה", "доб", "εσωτ"}

func bySlash(s string) []string {
	parts := strings.Split(s, "/")
	for _, p := range parts {
		if len(digits(p)) < localDigits {
			return []string{strings.ReplaceAll(s, "/", " ")}
		}
	}
	return parts
}

// digits returns the digits of a text.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, s)
}

// cleanPhone keeps the digits of a number that identify it.
func cleanPhone(s string) phoneNumber {
	written := digits(strings.Replace(s, "(0)", "", 1))
	d := strings.TrimLeft(written, "0")
	if len(d) < minDigits || len(d) > maxDigits {
		return phoneNumber{}
	}
	return phoneNumber{digits: d, brand: lexicon.BrandNumber(strings.TrimPrefix(written, "00"))}
}

// comparePhones compares two fields: phoneSame when they have a number in common, else phoneLocal when they have one without its area
// code, else phoneDiffers, else phoneBrand when they have only a brand's number in common, and noFeature when there is nothing to
// compare: a brand's number and the number of a place can both be right. It does not allocate.
func comparePhones(a, b []phoneNumber) feature {
	best := phoneBrand + 1
	for _, n := range a {
		for _, m := range b {
			f := equalPhones(n.digits, m.digits)
			if f != phoneDiffers && (n.brand || m.brand) {
				f = phoneBrand
			} else if n.brand != m.brand {
				continue
			}
			best = min(best, f) // in the order of the features
		}
	}
	if best > phoneBrand {
		return noFeature
	}
	return best
}

// longestPrefix is the most digits that a country code and a mobile prefix add to a national number.
const longestPrefix = 5

func equalPhones(a, b string) feature {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, ok := strings.CutSuffix(b, a)
	switch {
	case ok && rest == "" && len(a) > localDigits:
		return phoneSame
	case ok && len(a) <= localDigits:
		return phoneLocal
	case ok && len(rest) <= longestPrefix:
		return phoneSame
	case trunkPrefix(a, b) || trunkPrefix(b, a):
		return phoneSame
	}
	return phoneDiffers
}

// trunks lists the trunk prefixes other than zero, and the country codes that replace them.
var trunks = [...]struct{ prefix, country string }{
	{"8", "7"}, {"80", "375"}, {"8", "370"}, {"8", "993"}, {"6", "36"}, {"1", "52"}, {"1", ""},
}

// trunkPrefix reports whether national is international with its country code in place of a trunk prefix that is not a zero:
// 8 in Russia, Kazakhstan, Belarus and their neighbours and in Lithuania, 6 (after a zero) in Hungary, 1 in North America.
func trunkPrefix(national, international string) bool {
	for _, p := range trunks {
		n, ok := strings.CutPrefix(national, p.prefix)
		if !ok || len(n) <= localDigits {
			continue
		}
		if i, ok := strings.CutPrefix(international, p.country); ok && i == n {
			return true
		}
	}
	return false
}

// Form is one way to read the names of a place. An index of many places finds candidates by the words of their forms.
type Form struct {
	// Words are the words of the name. Articles and the like are missing, unless there are no other words.
	Words []Word
	// Pairs are, of more than two words, each with the next as one word: Pairs[i] is Words[i] and Words[i+1].
	Pairs []Word
	// Whole are the ways to write or say the name as one word.
	Whole []Word
	// Weight is the sum of the weights of Words.
	Weight float64
}

// Word is a word of a name, two neighbours as one word, or a name as one word.
type Word struct {
	// Weight is the weight of the word in its name.
	Weight float64
	// Alone reports whether the word is the whole name.
	Alone bool
	// Class is what an index keeps apart: the number of the script, below zero of names as one word, and pairClass more of pairs.
	Class int

	token token.Token
}

// pairClass is added to the class of two neighbours as one word.
const pairClass = 1 << 8

// script returns the number of the script of the words of a class.
func script(class int) int { return max(class, -class) % pairClass }

// Forms returns the forms of the names of the place.
func (p *Prepared) Forms() (forms []Form) {
	for i := range p.name.Variants {
		forms = append(forms, formOf(&p.name.Variants[i]))
	}
	return forms
}

func formOf(v *name.Variant) (f Form) {
	texts := []string{string(v.Joined), "", ""}
	named := slices.ContainsFunc(v.Words, func(w name.Word) bool { return w.Kind != lexicon.Stop })
	for i, t := range v.Tokens {
		if texts[2] += t.Text; !named || v.Words[i].Kind != lexicon.Stop {
			texts[1] += t.Text
			f.Words = append(f.Words, Word{Weight: v.Words[i].Weight, Class: int(t.Script), token: t})
			f.Weight += v.Words[i].Weight
		}
	}
	for i := 0; len(f.Words) > 2 && i+1 < len(f.Words); i++ {
		a, b := &f.Words[i], &f.Words[i+1]
		t := oneWord(a.token.Text+b.token.Text, a.token.Script, token.NewRow(slices.Concat(a.token.Row.Sounds, b.token.Row.Sounds)))
		f.Pairs = append(f.Pairs, Word{Weight: a.Weight + b.Weight, Class: int(t.Script) + pairClass, token: t})
	}
	for i, row := range []token.Row{v.Row, v.Whole, v.Said} {
		if slices.Contains(texts[:i], texts[i]) {
			continue
		}
		t := oneWord(texts[i], v.Script, row)
		f.Whole = append(f.Whole, Word{Weight: f.Weight, Class: -int(t.Script), token: t})
	}
	if len(f.Words) == 1 && texts[0] == texts[1] {
		f.Words[0].Alone = true
		f.Whole[0] = f.Words[0]
	}
	return f
}

// oneWord returns several words as one.
func oneWord(written string, script text.Script, said token.Row) token.Token {
	t := token.New(text.Word{Text: written, Raw: written, Script: script}, "")
	t.Row = said
	return t
}

// City is the same for cities that have the same name.
func (p *Prepared) City() string { return p.city.Canonical }

// maxKeys bounds the keys of one address.
const maxKeys = 64

// Keys returns keys by which a place is found whatever its name: the ends of the telephone numbers, with a p before them, and each house
// number with each word of the street and its consonants, with an a before them.
func (p *Prepared) Keys() []string {
	var keys []string
	for _, n := range p.address.Numbers {
		for number := n.Low; number <= n.High && len(keys) < maxKeys; number++ {
			for _, t := range slices.Concat(p.address.Street, p.address.Also) {
				for _, word := range append(token.Skeletons(t.Row.Sounds), cmp.Or(t.Concept, t.Text)) {
					keys = appendNew(keys, "a"+strconv.Itoa(number)+" "+word)
				}
			}
		}
	}
	for _, n := range p.phones {
		keys = appendNew(keys, "p"+n.Key())
	}
	return keys
}

// ID is the same for words that are alike to the same words.
func (w *Word) ID() string {
	return fmt.Sprint(w.token.Text, "\x00", w.token.Concept, w.token.Row.Sounds, w.Class)
}

// Likeness returns how likely two words are one word, in [0,1].
func (w *Word) Likeness(other *Word) float64 { return token.Similarity(&w.token, &other.token) }

// Stored returns the keys under which an index stores a word.
func (w *Word) Stored() []string { return w.keys(w.Class < pairClass, true, "k", "x") }

// Asked returns keys one of which every word of a class has that is alike: the word, its meaning, how it begins, or its consonants,
// which are alike across scripts. Two spellings that differ in one letter have a key in common when it is left out.
func (w *Word) Asked(class int) []string {
	pair, paired := w.Class >= pairClass, class >= pairClass
	switch {
	case pair && (paired || class < 0) || paired && w.Class < 0:
		return nil // of two pairs, the words are alike
	case script(class) != script(w.Class):
		return w.keys(false, true, "x", "k")
	case pair || paired || class < 0 && w.Class >= 0 && !w.Alone: // two words that are written as one
		return []string{"t" + w.token.Text}
	}
	return w.keys(true, false, "x", "k")
}

// The bounds of keys.
const (
	keyLength  = 4  // letters of the beginning of a word, and consonants of the beginning and the end of a long one
	fewSounds  = 4  // consonants up to which the letters of a word tell more in its own script
	maxSounds  = 7  // consonants of a word up to which it is found with any one of them left out
	maxLetters = 12 // letters of which one is left out, in words of few consonants
)

// keys returns the keys by which a word is found in its own script, and those by which it is heard in others. There, one of the words may
// have a consonant more: the shorter word has the prefix full before its consonants, and the longer has it where it leaves one out.
func (w *Word) keys(written, heard bool, full, left string) []string {
	t := &w.token
	keys := []string{"t" + t.Text}
	if t.Concept != "" {
		keys = append(keys, "c"+t.Concept)
	}
	skeletons := token.Skeletons(t.Row.Sounds)
	if written && len(t.Runes) >= keyLength {
		if w.Class >= 0 {
			keys = append(keys, "f"+string(t.Runes[:keyLength]))
		}
		if few := len(skeletons) == 0 || len(skeletons[0]) <= fewSounds+1; few && len(t.Runes) <= maxLetters {
			keys = append(keys, shorter("t", t.Text)...)
		}
	}
	for _, s := range append(skeletons, token.Skeletons(t.Spelled.Sounds)...) {
		keys = append(keys, "k"+s)
		if heard {
			keys = append(append(keys, full+s), shorter(left, s)...)
		}
		if len(s) > maxSounds && w.Class >= 0 {
			keys = append(keys, "b"+s[:keyLength], "e"+s[len(s)-keyLength:])
		}
		if len(s) >= fewSounds && len(s) <= maxSounds+1 {
			keys = append(keys, "y"+s)
		}
		if len(s) > fewSounds && len(s) <= maxSounds+1 { // also of the shortest long word: its misspelling may have one sound less
			keys = append(keys, shorter("y", s)...)
		}
	}
	return keys
}

// shorter returns keys for a word of up to maxLetters with each of its runes left out. A skeleton has no class twice in a row.
func shorter(kind, word string) (keys []string) {
	runes := []rune(word)
	for i := range runes[:min(len(runes), maxLetters)] {
		rest := slices.Concat(runes[:i], runes[i+1:])
		if kind != "t" {
			rest = slices.Compact(rest)
		}
		keys = append(keys, kind+string(rest))
	}
	return keys
}
