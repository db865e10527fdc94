package lexicon

import (
	"strconv"
	"strings"
)

// Number returns the value of a number word as digits: "five", "cinq" and "пять" are "5".
func Number(word string) (string, bool) {
	n, ok := numbers[word]
	return n, ok
}

// Ordinal returns the value of an ordinal word or of digits with an ordinal ending: "fifth", "5th", "5e" are "5".
func Ordinal(word string) (string, bool) {
	if n, ok := ordinals[strings.TrimPrefix(word, "ה")]; ok { // the Hebrew article
		return n, true
	}
	digits := 0
	for digits < len(word) && word[digits] >= '0' && word[digits] <= '9' {
		digits++
	}
	if digits == 0 || digits > 3 {
		return "", false
	}
	switch word[digits:] {
	case "st", "nd", "rd", "th", "er", "ere", "eme", "e", "o", "a", "ª", "º", "й", "я", "ый", "ая", "го", "ος", "η":
		return word[:digits], true
	}
	return "", false
}

// Roman returns the value of a Roman numeral below forty, as streets carry them: "Pius XII", "Henri IV". One letter is
// taken for an initial, except V and X, and a word that is no numeral in its shortest form for a word.
func Roman(word string) (string, bool) {
	if len(word) > maxRoman || word == "i" || strings.Trim(word, "ivx") != "" {
		return "", false
	}
	value := 0
	for i := range len(word) {
		d := romanDigit(word[i])
		if i+1 < len(word) && d < romanDigit(word[i+1]) {
			d = -d
		}
		value += d
	}
	if value <= 0 || value >= 40 || roman(value) != word {
		return "", false
	}
	return strconv.Itoa(value), true
}

// maxRoman is the length of the longest numeral below forty, XXXVIII.
const maxRoman = 7

func romanDigit(c byte) int { return [...]int{'i': 1, 'v': 5, 'x': 10}[c] }

func roman(n int) string {
	units := [...]string{"", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"}
	return strings.Repeat("x", n/10) + units[n%10]
}

// index reads lines of "value word word ...".
func index(table string) map[string]string {
	out := make(map[string]string, 256)
	for line := range strings.SplitSeq(table, "\n") {
		f := strings.Fields(line)
		for i := 1; i < len(f); i++ {
			out[key(f[i])] = f[0]
		}
	}
	return out
}

// Words that are more often an article or another word ("un", "une", "eins", "once", "sei") are left out.
var numbers = index(` 
1 one אחד אחת один واحد
2 two deux dos due zwei dois два δυο שתיים שניים اثنان
3 three trois tres drei tre три τρια שלוש שלושה ثلاثة
4 four quatre cuatro vier quattro quatro четыре τεσσερα ארבע ארבעה اربعة
5 five cinq cinco funf cinque пять πεντε חמש חמישה خمسة
6 six seis sechs шесть εξι שש שישה ستة
7 seven sept siete sieben sette sete семь επτα εφτα שבע שבעה سبعة
8 eight huit ocho acht otto oito восемь οκτω οχτω שמונה ثمانية
9 nine neuf nueve neun nove девять εννεα εννια תשע תשעה تسعة
10 ten dix diez zehn dieci dez десять δεκα עשר עשרה عشرة
11 eleven onze elf undici
12 twelve douze doce zwolf dodici doze
13 thirteen treize
14 fourteen quatorze
15 fifteen quinze
16 sixteen seize
17 seventeen
18 eighteen
19 nineteen
20 twenty vingt veinte zwanzig venti vinte
30 thirty trente treinta dreissig trenta
40 forty fourty quarante cuarenta vierzig quaranta
50 fifty cinquante cincuenta funfzig cinquanta
60 sixty
70 seventy
80 eighty
90 ninety
100 hundred cien cent cento hundert
`)

var ordinals = index(`
1 first premier premiere primera primero primo prima erste ersten первая первый первого πρωτη πρωτου ראשון ראשונה اول اولى
2 second deuxieme segunda segundo seconda zweite вторая второй второго δευτερη δευτερου שני שניה שנייה ثاني ثانيه
3 third troisieme tercera tercero terza dritte третья третий третьего τριτη τριτου שלישי שלישית ثالث ثالثه
4 fourth quatrieme cuarta quarta vierte четвертая четвертый τεταρτη τεταρτου רביעי רביעית رابع رابعه
5 fifth cinquieme quinta funfte пятая пятый πεμπτη πεμπτου חמישי חמישית خامس خامسه
6 sixth sixieme sexta sechste шестая шестой εκτη εκτου שישי שישית سادس سادسه
7 seventh septieme septima siebte седьмая седьмой εβδομη שביעי שביעית سابع سابعه
8 eighth huitieme octava achte восьмая восьмой ογδοη שמיני שמינית ثامن ثامنه
9 ninth neuvieme novena neunte девятая девятый ενατη תשיעי תשיעית تاسع تاسعه
10 tenth dixieme decima zehnte десятая десятый δεκατη עשירי עשירית عاشر عاشره
11 eleventh
12 twelfth
13 thirteenth
14 fourteenth
15 fifteenth
16 sixteenth
17 seventeenth
18 eighteenth
19 nineteenth
20 twentieth
`)
