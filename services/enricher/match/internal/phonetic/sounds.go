// Package phonetic compares words by sound across the Latin, Cyrillic, Greek, Hebrew and Arabic scripts.
//
// A word becomes a row of sounds. A sound is a set of phonemes, because most letters stand for several (Hebrew bet is b
// or v, Latin ch is tsh, kh, sh or k), with a mark when the letter is often silent or a mere vowel sign. Two rows are
// aligned by an edit distance in which sets that meet cost nothing, neighbours (p and f, s and z) cost a part, and vowels
// cost next to nothing when one of the scripts leaves them out. Digraphs are read before any vowel is dropped.
package phonetic

import (
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

	vowels   = pA | pE | pI | pO | pU
	glides   = pY | pW
	phonemes = silent - 1
)

// MaxSounds bounds the length of a row.
const MaxSounds = 48

// Of returns the sounds of a folded word with its apostrophes. Doubled letters sound once where vowels are written;
// elsewhere a vowel stands between them, because a doubled sound is written once. The row of a script that is not compared
// by sound is empty.
func Of(raw string, script text.Script) []Sound {
	if !script.Sounded() {
		return nil
	}
	in := []rune(raw)
	out := make([]Sound, 0, len(in)+2)
	for i := 0; i < len(in) && len(out) < MaxSounds; {
		sounds, n := read(in, i)
		for _, s := range sounds {
			doubled := !script.Abjad() && len(out) > 0 && out[len(out)-1]&^silent == s&^silent
			if s == 0 || doubled {
				continue
			}
			out = append(out, s)
		}
		i += n
	}
	if script == text.Latin && len(out) > 1 && strings.HasSuffix(raw, "'s") {
		out[len(out)-1] |= silent // the possessive, which other languages say with a word
	}
	return out[:min(len(out), MaxSounds)]
}

// read returns the sounds at position i and how many runes they took.
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
	switch {
	case (r == 'c' || r == 'g') && (next == 'e' || next == 'i' || next == 'y'):
		if r == 'c' {
			return [2]Sound{pS | pCh | pK | pTs}, 1
		}
		return [2]Sound{pG | pJ | pZh}, 1
	case first:
		if s, ok := initial[r]; ok {
			return s, 1
		}
	case last:
		if s, ok := final[r]; ok {
			return s, 1
		}
	}
	return letters[r], 1
}

// longest is the length of the longest digraph that starts with r.
func longest(r rune) int {
	if r < utf8.RuneSelf {
		return int(starts[r])
	}
	return maxDigraph
}

const maxDigraph = 4

// starts is longest for ASCII letters.
var starts = func() (table [utf8.RuneSelf]uint8) {
	for d := range digraphs {
		if d[0] < utf8.RuneSelf {
			table[d[0]] = max(table[d[0]], uint8(min(len(d), maxDigraph)))
		}
	}
	return table
}()

// Weight returns how many consonants of a row cannot be silent: how much there is to compare.
func Weight(row []Sound) int {
	n := 0
	for _, s := range row {
		if s&silent == 0 && s&vowels == 0 {
			n++
		}
	}
	return n
}
