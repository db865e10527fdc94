package charset

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// maxGuess bounds the part of a text by which its encoding is guessed.
const maxGuess = 64 << 10

// alphabets have the letters beyond a to z of languages, or a script, by the encodings in which these are found. Of equally good ones
// the first is taken, so a script comes before those whose texts have bytes that are no letters of it.
var alphabets = []struct {
	encodings string
	letters   []string
	scripts   []*unicode.RangeTable
}{
	{"windows-1252", []string{"àâæçéèêëîïôœùûüÿ", "äöüß", "áéíóúüñ", "àáâãçéêíóôõú", "àèéìíîòóùú", "åäöæøé", "áéíóúýðþæö", "éèëïöüáó"}, nil},
	{"windows-1250 iso-8859-2", []string{"ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîșțşţ", "čćđšž"}, nil},
	{"windows-1254", []string{"çğıİöşüâîû"}, nil},
	{"windows-1257", []string{"ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"}, nil},
	{"windows-1255", nil, []*unicode.RangeTable{unicode.Hebrew}},
	{"windows-1253 iso-8859-7", nil, []*unicode.RangeTable{unicode.Greek}},
	{"windows-1251 koi8-r iso-8859-5 ibm866", nil, []*unicode.RangeTable{unicode.Cyrillic}},
	{"windows-1256", nil, []*unicode.RangeTable{unicode.Arabic}},
	{"shift_jis euc-jp", nil, []*unicode.RangeTable{unicode.Hiragana, unicode.Katakana, unicode.Han}},
	{"euc-kr", nil, []*unicode.RangeTable{unicode.Hangul}},
	{"gb18030 big5", nil, []*unicode.RangeTable{unicode.Han}},
}

// guess returns the encoding in which the letters of a text are most often those of one language: windows-1252 when none is better.
func guess(text []byte) string {
	text = text[:min(len(text), maxGuess)]
	best, most := "windows-1252", 0.0
	for _, a := range alphabets {
		for name := range strings.FieldsSeq(a.encodings) {
			encoding, _ := charset.Lookup(name)
			decoded, err := encoding.NewDecoder().String(string(text))
			if err != nil || len(a.scripts) > 1 && !strings.ContainsFunc(decoded, hiragana) {
				continue // a text without is Chinese
			}
			for i := range max(1, len(a.letters)) {
				share := fit(decoded, func(r rune) bool {
					return len(a.letters) > 0 && strings.ContainsRune(a.letters[i], unicode.ToLower(r)) || unicode.In(r, a.scripts...)
				})
				if share > most {
					best, most = name, share
				}
			}
		}
	}
	return best
}

func hiragana(r rune) bool { return unicode.Is(unicode.Hiragana, r) }

// fit returns the share of the letters beyond ASCII that are in an alphabet, less what no text has: capitals after small letters, signs
// within words, and characters that cannot be read.
func fit(text string, has func(rune) bool) float64 {
	good, all := 0, 0
	last := ' '
	for i, r := range text {
		next, _ := utf8.DecodeRuneInString(text[i+utf8.RuneLen(r):])
		inWord := unicode.IsLetter(last) && unicode.IsLetter(next)
		switch {
		case r < utf8.RuneSelf:
		case r == utf8.RuneError, unicode.IsControl(r), inWord && (r == 'ς' || r < 0x2000 && !unicode.IsLetter(r)),
			unicode.In(r, unicode.S, unicode.No) && (unicode.IsLetter(last) || unicode.IsLetter(next)):
			good, all = good-1, all+1
		case !unicode.IsLetter(r), unicode.Is(unicode.Lm, r):
		default:
			all++
			if has(r) {
				good++
			}
			if unicode.IsUpper(r) && unicode.IsLower(last) {
				good -= 2
			}
		}
		last = r
	}
	return float64(good) / float64(max(1, all))
}
