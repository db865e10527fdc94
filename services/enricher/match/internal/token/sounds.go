package token

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// Sound is a set of phonemes, with silent set when the letter may stand for none.
type Sound uint32

// The phonemes. Capitals are the conventional two-letter spellings: S_ is sh, Z_ zh, C ts, C_ ch, K_ kh, G_ gh, J dzh.
const (
	pA Sound = 1 << iota
	pE
	pI
	pO
	pU
	pP
	pB
	pF
	pV
	pM
	pT
	pD
	pN
	pS
	pZ
	pSh
	pZh
	pTs
	pCh
	pJ
	pK
	pG
	pKh
	pGh
	pH
	pL
	pR
	pY
	pW
	silent
	sign // a letter for some vowels only, in a script that leaves vowels out

	vowels   = pA | pE | pI | pO | pU
	glides   = pY | pW
	phonemes = silent - 1
)

// Optional returns a sound that may be left out.
func (s Sound) Optional() Sound { return s | silent }

// MaxSounds bounds the length of a row.
const MaxSounds = 48

// Of returns the sounds of a folded word with its apostrophes. A doubled letter sounds once in scripts that write vowels.
// In other scripts there is a vowel between the two letters, because a doubled sound is written once. The row of a script
// that is not compared by sound is empty.
func Of(raw string, script text.Script) []Sound {
	if !script.Sounded() {
		return nil
	}
	in := []rune(raw)
	out := make([]Sound, 0, len(in)+2)
	for i := 0; i < len(in) && len(out) < MaxSounds; {
		sounds, n := read(in, i)
		for _, s := range sounds {
			doubled := !script.Abjad() && len(out) > 0 && out[len(out)-1]&phonemes == s&phonemes
			if s == 0 || doubled {
				continue
			}
			if n > 1 && s&pY != 0 && s&silent != 0 && sounds[0]&(pA|pO|pU) != 0 { // every script writes the y of ai and oy
				s |= sign
			}
			if script.Abjad() && s&silent != 0 && s&vowels != 0 && s&vowels != vowels {
				s |= sign
			}
			out = append(out, s)
		}
		i += n
	}
	if script == text.Latin && len(out) > 1 && strings.HasSuffix(raw, "'s") {
		out[len(out)-1] |= silent // the possessive, for which other languages have a word
	}
	return out[:min(len(out), MaxSounds)]
}

// letterNames has the English names of the letters from a to z, spelled by sound.
var letterNames = strings.Fields("ei bi si di i ef dji eich ai djei kei el em en o pi kiu ar es ti iu vi dabliu eks uai zed")

// Spelled returns the sounds of a folded word that is spoken letter by letter. It returns none when a letter is not
// Latin.
func Spelled(word string) (out []Sound) {
	for _, r := range word {
		if r < 'a' || r > 'z' {
			return nil
		}
		out = append(out, Of(letterNames[r-'a'], text.Latin)...)
	}
	return out
}

// read returns the sounds at position i and the number of runes read.
func read(in []rune, i int) ([2]Sound, int) {
	for n := min(longest(in[i]), len(in)-i); n > 1; n-- {
		if s, ok := digraphs[string(in[i:i+n])]; ok {
			return s, n
		}
	}
	r := in[i]
	first, last := i == 0, i == len(in)-1
	next := rune(0)
	if !last {
		next = in[i+1]
	}
	if s := english(in, i, next); s[0] != 0 {
		return s, 1
	}
	switch {
	case carrier(r) && (strings.ContainsRune("ויايو", next) || !first && strings.ContainsRune("וי", in[i-1])):
		return [2]Sound{vowels | silent}, 1
	case first:
		if s, ok := initial[r]; ok {
			return s, 1
		}
	case last && strings.ContainsRune("הه", r) && strings.ContainsRune("יي", in[i-1]): // silent behind a vowel, or in another syllable
		return [2]Sound{vowels | pH | silent}, 1
	case last:
		if s, ok := final[r]; ok {
			return s, 1
		}
	}
	return letters[r], 1
}

// carrier reports whether a letter carries the vowel that is written behind it, and so separates two vowels.
func carrier(r rune) bool { return strings.ContainsRune("אעاع", r) }

// english returns the sounds of a Latin letter that English and its neighbours read by the letters around it.
func english(in []rune, i int, next rune) [2]Sound {
	soft := next == 'e' || next == 'i' || next == 'y'
	switch r := in[i]; {
	case r == 'c' && soft:
		return [2]Sound{pS | pCh | pK | pTs}
	case r == 'c' && !slices.ContainsFunc(in, vowel): // KFC is КФС
		return [2]Sound{pK | pTs | pS}
	case r == 'g' && soft:
		return [2]Sound{pG | pJ | pZh}
	case r == 't' && next == 0 && i > 2 && (in[i-1] == 'e' || in[i-1] == 'o'): // buffet, depot
		return [2]Sound{pT | silent}
	case r == 'u' && next == 'r': // burger
		return [2]Sound{pU | pE}
	case r == 'u' && closed(in, i+1): // pub, subway
		return [2]Sound{pU | pA}
	case vowel(r) && open(in, i+1):
		return long[r]
	}
	return [2]Sound{}
}

// long gives the sounds of a vowel before a consonant and a silent e at the end.
var long = map[rune][2]Sound{
	'a': {pA | pE, pY | pI | silent}, // shake, cafe
	'i': {pI | pA, pY | pI | silent}, // five, lime
	'y': {pI | pA, pY | pI | silent},
}

// closed reports whether there is a consonant at i, with another consonant or the end behind it. Before some
// consonants English keeps the u.
func closed(in []rune, i int) bool {
	return i < len(in) && !strings.ContainsRune("aeiouyrlz", in[i]) && (i+1 == len(in) || !vowel(in[i+1]))
}

// open reports whether there is a consonant at i, with a silent e at the end behind it.
func open(in []rune, i int) bool {
	return i+1 < len(in) && !vowel(in[i]) && in[i+1] == 'e' && (i+2 == len(in) || i+3 == len(in) && in[i+2] == 's')
}

func vowel(r rune) bool { return strings.ContainsRune("aeiouy", r) }

// longest is the length of the longest digraph that starts with r.
func longest(r rune) int {
	if r < utf8.RuneSelf {
		return int(starts[r])
	}
	return maxDigraph
}

const maxDigraph = 5

// starts has the result of longest for each ASCII letter.
var starts = func() (table [utf8.RuneSelf]uint8) {
	for d := range digraphs {
		if d[0] < utf8.RuneSelf {
			table[d[0]] = max(table[d[0]], uint8(min(len(d), maxDigraph)))
		}
	}
	return table
}()

// Weight returns the number of consonants of a row that cannot be silent.
func Weight(row []Sound) int {
	n := 0
	for _, s := range row {
		if s&silent == 0 && s&vowels == 0 {
			n++
		}
	}
	return n
}

// letters gives the sounds of a letter where no other table applies. The values follow the usual romanisations (ISO
// 259, ISO 233, ISO 9, ISO 843) widened by spellings of signs and menus.
var letters = map[rune][2]Sound{
	// Latin.
	'a': {pA}, 'b': {pB}, 'c': {pK | pTs}, 'd': {pD}, 'e': {pE}, 'f': {pF}, 'g': {pG}, 'h': {pH | silent}, 'i': {pI}, 'j': {pJ | pZh | pY | pH | pKh},
	'k': {pK}, 'l': {pL}, 'm': {pM}, 'n': {pN}, 'o': {pO}, 'p': {pP}, 'q': {pK}, 'r': {pR}, 's': {pS | pZ}, 't': {pT}, 'u': {pU}, 'v': {pV | pF},
	'w': {pW | pV}, 'x': {pK, pS}, 'y': {pY | pI}, 'z': {pZ | pTs | pS},
	// Cyrillic.
	'а': {pA}, 'б': {pB}, 'в': {pV | pW}, 'г': {pG | pH}, 'ґ': {pG}, 'д': {pD}, 'е': {pE}, 'ж': {pZh | pJ}, 'з': {pZ}, 'и': {pI}, 'й': {pY | pI | silent},
	'к': {pK}, 'л': {pL}, 'м': {pM}, 'н': {pN}, 'о': {pO}, 'п': {pP}, 'р': {pR}, 'с': {pS}, 'т': {pT}, 'у': {pU | pW}, 'ф': {pF}, 'х': {pKh | pH},
	'ц': {pTs}, 'ч': {pCh}, 'ш': {pSh}, 'щ': {pSh | pCh, pT | pCh | silent}, 'ъ': {pA | pU | silent}, 'ы': {pI}, 'ь': {}, 'э': {pE}, 'ю': {pY | silent, pU}, 'я': {pY | silent, pA},
	'і': {pI}, 'ї': {pI}, 'є': {pE}, 'ў': {pW | pV}, 'ј': {pY}, 'љ': {pL}, 'њ': {pN}, 'ћ': {pCh}, 'ђ': {pJ}, 'џ': {pJ},
	// Greek.
	'α': {pA}, 'β': {pV | pB}, 'γ': {pG | pGh | pY}, 'δ': {pD}, 'ε': {pE}, 'ζ': {pZ}, 'η': {pI | pE}, 'θ': {pT}, 'ι': {pI}, 'κ': {pK}, 'λ': {pL}, 'μ': {pM},
	'ν': {pN}, 'ξ': {pK, pS}, 'ο': {pO}, 'π': {pP}, 'ρ': {pR}, 'σ': {pS | pZ}, 'τ': {pT}, 'υ': {pI | pU | pY}, 'φ': {pF}, 'χ': {pKh | pH}, 'ψ': {pP, pS}, 'ω': {pO},
	// Hebrew.
	'א': {pA | pE | silent}, 'ב': {pB | pV}, 'ג': {pG}, 'ד': {pD}, 'ה': {pH}, 'ו': {pV | pW | pO | pU | silent}, 'ז': {pZ}, 'ח': {pKh | pH}, 'ט': {pT},
	'י': {pY | pI | pE | silent}, 'כ': {pK | pKh}, 'ל': {pL}, 'מ': {pM}, 'נ': {pN}, 'ס': {pS}, 'ע': {vowels | silent}, 'פ': {pP | pF}, 'צ': {pTs}, 'ק': {pK},
	'ר': {pR}, 'ש': {pSh | pS}, 'ת': {pT},
	// Arabic, Persian, Urdu.
	'ا': {pA | silent}, 'ب': {pB | pP}, 'پ': {pP}, 'ت': {pT}, 'ث': {pT | pS}, 'ج': {pJ | pG | pZh}, 'چ': {pCh | pJ | pG}, 'ح': {pH | pKh}, 'خ': {pKh | pK},
	'د': {pD}, 'ذ': {pD | pZ}, 'ر': {pR}, 'ز': {pZ}, 'ژ': {pZh}, 'س': {pS}, 'ش': {pSh}, 'ص': {pS}, 'ض': {pD | pZ}, 'ط': {pT}, 'ظ': {pZ | pD}, 'ع': {vowels | silent},
	'غ': {pG | pGh}, 'ف': {pF | pV}, 'ڤ': {pV}, 'ق': {pK | pG}, 'ك': {pK | pG}, 'گ': {pG}, 'ل': {pL}, 'م': {pM}, 'ن': {pN}, 'ه': {pH},
	'و': {pV | pW | pO | pU | silent}, 'ي': {pY | pI | pE | silent}, 'ء': {silent | vowels},
	// Georgian.
	'ა': {pA}, 'ბ': {pB}, 'გ': {pG}, 'დ': {pD}, 'ე': {pE}, 'ვ': {pV | pW}, 'ზ': {pZ}, 'თ': {pT}, 'ი': {pI}, 'კ': {pK}, 'ლ': {pL}, 'მ': {pM}, 'ნ': {pN},
	'ო': {pO}, 'პ': {pP}, 'ჟ': {pZh | pJ}, 'რ': {pR}, 'ს': {pS}, 'ტ': {pT}, 'უ': {pU | pW}, 'ფ': {pP | pF}, 'ქ': {pK}, 'ღ': {pGh | pG}, 'ყ': {pK | pG}, 'შ': {pSh},
	'ჩ': {pCh}, 'ც': {pTs}, 'ძ': {pZ | pTs | pJ}, 'წ': {pTs}, 'ჭ': {pCh}, 'ხ': {pKh}, 'ჯ': {pJ}, 'ჰ': {pH},
	// Armenian, in the eastern and the western reading.
	'ա': {pA}, 'բ': {pB | pP}, 'գ': {pG | pK}, 'դ': {pD | pT}, 'ե': {pE}, 'զ': {pZ}, 'է': {pE}, 'ը': {vowels | silent}, 'թ': {pT}, 'ժ': {pZh}, 'ի': {pI}, 'լ': {pL},
	'խ': {pKh}, 'ծ': {pTs | pZ}, 'կ': {pK | pG}, 'հ': {pH}, 'ձ': {pZ | pTs}, 'ղ': {pGh | pG | pL}, 'ճ': {pCh | pJ}, 'մ': {pM}, 'յ': {pY | silent}, 'ն': {pN},
	'շ': {pSh}, 'ո': {pO}, 'չ': {pCh}, 'պ': {pP | pB}, 'ջ': {pJ | pCh}, 'ռ': {pR}, 'ս': {pS}, 'վ': {pV}, 'տ': {pT | pD}, 'ր': {pR}, 'ց': {pTs}, 'ւ': {pV | pW}, 'փ': {pP},
	'ք': {pK}, 'օ': {pO}, 'ֆ': {pF}, 'և': {pE, pV},
}

// initial gives the sounds of letters that sound differently at the start of a word.
var initial = map[rune][2]Sound{
	'ا': {vowels}, 'א': {pA | pE | pO | sign}, 'ע': {pA | pE | pO | sign}, 'ع': {vowels}, 's': {pS}, 'z': {pZ | pTs}, 'h': {pH}, 'x': {pZ | pK | pS | pSh, pS | silent},
	'ו': {pV | pW}, 'י': {pY | pJ | pI}, 'ה': {pH | silent}, 'ه': {pH}, 'و': {pW | pV | pO | pU}, 'ي': {pY | pI}, 'й': {pY | pI},
}

// final gives the sounds of letters that sound differently at the end of a word.
var final = map[rune][2]Sound{
	'ה': {pH | pA | pE | silent}, 'ه': {pH | pA | pE | silent}, 'ი': {pI | silent}, 'd': {pD | pT}, 'д': {pD | pT}, 'в': {pV | pF},
}

// digraphs gives the sounds of letters that are read together, the longest first. Letters that one language reads
// together and another separately have both readings, with the rarer sound optional: Polish "rz" is zh, but "Herzl" has
// both sounds.
var digraphs = map[string][2]Sound{
	"tsch": {pCh}, "sch": {pSh | pS, pK | pKh | silent}, "tch": {pCh}, "sh": {pSh}, "ch": {pCh | pKh | pSh | pK | pH},
	"ph": {pF}, "th": {pT | pD}, "kh": {pKh | pK | pH}, "gh": {pG | pGh | silent}, "zh": {pZh}, "ts": {pTs | pT, pS | silent},
	"tz": {pTs | pT, pZ | silent}, "cz": {pCh}, "sz": {pSh | pS}, "rz": {pR | silent, pZ | pZh | pTs}, "dj": {pJ}, "dzh": {pJ},
	"dg": {pD | silent, pJ | pG}, "ck": {pK}, "qu": {pK, pW | pV | silent}, "oo": {pU | pO}, "ee": {pI | pE},
	"ou": {pA | pO | pU, pU | pW | silent}, "ow": {pO | pA, pW | silent}, "ea": {pI | pE, pA | silent}, "wh": {pW | pH | pV}, "kn": {pK | silent, pN},
	"wr": {pW | silent, pR}, "ae": {pA | pE}, "oe": {pO | pE}, "ue": {pU | pI}, "gn": {pG | pN, pN | pY | silent},
	"gli": {pG | silent, pL}, "cc": {pK | pCh}, "sci": {pSh | pS, pI},
	"ll":    {pL | pY},
	"au":    {pA | pO, pU | pV | pF | silent},
	"eu":    {pE | pO, pU | pV | pF | silent},
	"ault":  {pO},
	"eau":   {pO},
	"ay":    {pA | pE, pY | pI | silent},
	"ai":    {pA | pE, pY | pI | silent},
	"ei":    {pA | pE, pY | pI | silent},
	"ey":    {pE, pY | pI | silent},
	"oi":    {pO | pU, pI | pA},
	"cae":   {pS | pK | pTs, pI | pE | pA},
	"oy":    {pO | pU, pY | pI | pA},
	"uy":    {pA | pU, pY | pI},
	"eye":   {pA, pY | pI},
	"igh":   {pA | pI, pY | pI | silent},
	"jea":   {pZh | pJ, pA | pI | pE},
	"cques": {pK, pS | silent},
	"cque":  {pK, pE | silent},
	"que":   {pK, pE | silent},
	"ques":  {pK, pS | silent},
	"tion":  {pSh | pTs, pN},
	"ու":    {pU},
	"եւ":    {pE, pV},
	"dz":    {pJ | pZ | pTs},
	"тс":    {pTs},
	"ье":    {pY | pI | silent, pE},
	"ья":    {pY | pI | silent, pA},
	"ью":    {pY | pI | silent, pU},
	"дж":    {pJ},
	"кс":    {pK, pS},
	"тч":    {pCh},
	"μπ":    {pB | pM, pP | silent},
	"ντ":    {pD | pN, pT | silent},
	"γκ":    {pG | pN, pK | silent},
	"γγ":    {pG | pN},
	"τζ":    {pTs | pJ | pZ},
	"τσ":    {pTs | pCh},
	"ου":    {pU},
	"αι":    {pE | pA, pI | silent},
	"ει":    {pI | pE},
	"οι":    {pI | pO},
	"αυ":    {pA, pV | pF | pU},
	"ευ":    {pE, pV | pF | pU},
	"ג'":    {pJ | pCh},
	"ז'":    {pZh | pJ},
	"צ'":    {pCh},
	"ת'":    {pT},
	"ח'":    {pKh},
	"וו":    {pW | pV},
	"יי":    {pY | pI | pE | silent},
	"טש":    {pCh | pT, pSh | silent},
	"דז'":   {pJ},
	"קס":    {pK, pS},
	"لل":    {pL, pL | silent},     // as in Allah
	"الله":  {vowels | silent, pL}, // spoken with the vowel before it: Abdullah
	"تش":    {pCh},
	"دج":    {pJ},
	"كس":    {pK, pS},
}
