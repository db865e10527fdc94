package lexicon

import "strings"

// Number returns the value of a number word as digits: "five", "cinq" and "пять" are "5".
func Number(word string) (string, bool) {
	n, ok := numbers[word]
	return n, ok
}

// Ordinal returns the value of an ordinal word or of digits with an ordinal ending: "fifth", "5th", "5e" are "5".
func Ordinal(word string) (string, bool) {
	if n, ok := ordinals[word]; ok {
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

// index reads lines of "value word word ...".
func index(table string) map[string]string {
	out := make(map[string]string, 256)
	for _, line := range strings.Split(table, "\n") {
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
`) //nolint:gochecknoglobals // a constant table

var ordinals = index(`
1 first premier premiere primera primero primo prima erste ersten первая первый
2 second deuxieme segunda segundo seconda zweite вторая второй
3 third troisieme tercera tercero terza dritte третья третий
4 fourth quatrieme cuarta quarta vierte
5 fifth cinquieme quinta funfte
6 sixth sixieme sexta sechste
7 seventh septieme septima siebte
8 eighth huitieme octava achte
9 ninth neuvieme novena neunte
10 tenth dixieme decima zehnte
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
`) //nolint:gochecknoglobals // a constant table
