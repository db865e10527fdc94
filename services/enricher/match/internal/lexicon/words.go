// Package lexicon holds the fixed word tables of the matcher: words that say little about which venue is meant, words for
// the same thing in several languages, parts of addresses, numbers, and names of cities. The tables are written by hand
// from general knowledge of the languages. None is fitted to data.
package lexicon

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// stopWords are articles, prepositions, conjunctions and legal forms.
const stopWords = `
the le la les los las il lo gli el al der die das den dem het de da do du des di del della dello dei delle degli dos das o os as ha ال
a an un una uno une ein eine
and & n und et y e og och en ja i и й και ve ו و
of של von van vom zu zum zur til av på
at im am in on by bei near chez auf an ב ل في в на у
inc llc ltd limited gmbh ag sarl srl spa bv nv oy ab as aps plc corp corporation sa kg ohg ug eurl sas sl ооо ип зао оао בעמ
co company cie compagnie
s
`

// venueWords are words for kinds of places.
const venueWords = `
restaurant restaurants rest restaraunt restaurante restaurantes ristorante ristoranti restoran restauracja resto restó restauracia restaurang restaurace gasthaus gaststatte gasthof wirtshaus ravintola etterem מסעדה מסעדת ресторан рестораны εστιατοριο εστιατορια مطعم مطاعم رستوران lokanta lokantasi
cafe caffe kafe kafee kaffee coffee coffees coffeehouse coffeehouses coffeeshop espresso אספרסו cafeteria kaffeehaus kawiarnia kahve kahvila kahvehane kavarna koffie cafes קפה בית-קפה קפיטריה بيت-القهوة مقهى قهوة كافيه кафе кофейня кофе кофехауз кофехаус кавярня καφε καφετερια καφενειο
bar bars barra בר بار бар μπαρ
grill grille griglia grillbar grillhouse grillade גריל جريل مشويات гриль ψησταρια
bistro bistrot bistrò ביסטרו بيسترو бистро μπιστρο
brasserie braserie brauhaus brewpub brewery brewing brewhouse בראסרי пивная μπιραρια
pizzeria pizzaria pitseria פיצריה пиццерия πιτσαρια بيتزاريا
trattoria tratoria trattorie טרטוריה траттория τρατορια
osteria hostaria hosteria locanda אוסטריה остерия
taverna tavern taverne taberna tasca таверна ταβερνα טברנה
pub pubs publichouse alehouse פאב паб παμπ
inn lodge guesthouse auberge pousada albergue
diner diners דיינר дайнер
kitchen kitchens cocina cucina cuisine cuisines cozinha kuche keuken kuchnia mutfak מטבח кухня κουζινα مطبخ
bank banco banque banca banka בנק банк банка بنك مصرف τραπεζα ბანკი
house maison casa haus huis dom dum האוס хаус هاوس בית дом σπιτι بيت دار
room rooms salon salle sala saal חדר зал
club lounge klub מועדון לאונג клуб
hotel hotels hotell otel albergo hostal hostel מלון отель гостиница ξενοδοχειο فندق
steakhouse steak-house chophouse סטייקהאוס стейкхаус
dining din
bakery boulangerie bageterie panaderia panificio backerei bakkerij padaria patisserie pasticceria konditorei pekarna פסטיסרי מאפיה מאפיית קונדיטוריה пекарня кондитерская φουρνος ζαχαροπλαστειο مخبز حلويات
deli delicatessen delicatessens delis delikatessen דליקטסן מעדניה מעדני деликатесы
buffet buffets בופה буфет
eatery eateries eats
takeaway takeout take-away
canteen cantina cantine kantine mensa столовая kantyna קנטינה
parlor parlour
shop store boutique laden negozio tienda magasin חנות магазин
center centre centro zentrum centrum merkaz מרכז центр κεντρο مركز
place
branch filiale succursale sucursal סניף филиал فرع υποκαταστημα
express אקספרס экспресс
original originale
hall halle
garden gardens garten jardin jardim giardino גן сад κηπος حديقة
mall plaza shopping קניון молл مول
market mercado mercato marche markt rynek маркет ماركت שוק рынок αγορα سوق
street ave avenue
city town
catering קייטרינג кейтеринг
bros brothers freres fratelli hermanos gebruder האחים братья
chef שף шеф
gourmet גורמה
food foods אוכל еда φαγητο طعام اكل
`

// foodWords are dishes, cuisines and common adjectives.
const foodWords = `
saint st ste sainte sankt sint святой
abu abou אבו ابو абу
umm oum ام
mount mt
fort ft
doctor dr
mister mr
pizza pizzas pitsa пицца פיצה πιτσα بيتزا
burger burgers hamburger hamburgers burgery המבורגר המבורגרים בורגר бургер бургеры μπεργκερ برجر برغر همبرغر
sushi суши סושי σουσι سوشي
falafel פלאפל фалафель φαλαφελ فلافل
hummus humus houmous houmus hommos חומוס хумус χουμους حمص
shawarma shawerma shoarma shwarma shaurma שווארמה שוארמה שאוורמה шаурма شاورما
kebab kebap kabab kabob kebob doner קבב кебаб κεμπαπ كباب
steak steaks bistecca סטייק סטיק стейк ستيك
noodle noodles נודלס лапша نودلز
ramen ראמן рамен
taco tacos taqueria טאקו тако
sandwich sandwiches sandwichs sub subs סנדוויץ כריך كريك сэндвич
chicken pollo poulet huhn pui עוף צ'יקן курица κοτοπουλο دجاج فراخ
fish pesce poisson pescado fisch דג דגים рыба ψαρι سمك اسماك
seafood marisqueria mariscos peixe frutti פירות-ים θαλασσινα
meat carne viande fleisch בשר בשרים мясо κρεας لحم لحوم
wine vino vin wein vinho enoteca vinoteca יין вино κρασι
beer bier cerveza birra biere בירה пиво μπυρα
tea teahouse te tee תה чай شاي
juice juices jus מיץ сок عصير
icecream gelato gelateria glace eis eisdiele helado heladeria gelataria גלידה גלידריה мороженое παγωτο ايس بوظة
bbq barbecue barbeque barbacoa ברביקיו барбекю
pasta паста פסטה
salad salads סלט סלטים салат
soup soups suppe sopa מרק суп
breakfast brunch בוקר завтрак
pancake pancakes פנקייק פנקייקים блины
donut donuts doughnut doughnuts דונאט
bagel bagels бейгл בייגל
curry кари קארי
tapas טאפאס тапас
italian italiano italiana italiens italienisch איטלקי איטלקית итальянский ιταλικο ايطالي
chinese chinois chino cinese chinesisch סיני סינית китайский κινεζικο صيني
japanese japonais japones giapponese japanisch יפני יפנית японский ιαπωνικο ياباني
indian indien indisch indiano indio הודי הודית индийский ινδικο هندي
thai thailandais תאילנדי תאילנדית тайский ταϊλανδεζικο تايلندي
mexican mexicano mexicain mexikanisch messicano מקסיקני מקסיקנית мексиканский μεξικανικο مكسيكي
french francais frances franzosisch francese צרפתי צרפתית французский γαλλικο فرنسي
greek grec griechisch griego greco יווני יוונית греческий ελληνικο يوناني
american americano americain amerikanisch אמריקאי אמריקאית американский
asian asia asiatique asiatico asiatisch אסייתי אסייתית азиатский اسيوي
vietnamese pho вьетнамский
korean корейский קוריאני
turkish turc turco turkisch turk טורקי турецкий τουρκικο تركي
mediterranean mediterraneo mediterranee ים-תיכוני средиземноморский μεσογειακο
spanish espanol espagnol ספרדי
lebanese libanais libanes לבנוני لبناني
israeli israelien ישראלי
vegan vegane vegano וגן טבעוני веган
vegetarian veggie vegetarien vegetariano צמחוני
kosher כשר כשרה кошерный
halal halaal حلال
grand grande gran gross grosse גדול большой
little small petit petite pequeno piccolo piccola klein kleine קטן קטנה маленький μικρο صغير
new nuevo nueva nouveau nouvelle neue neuer neues nova novo nuova nuovo חדש חדשה новый νεο جديد
old alte alter altes vieux vieille viejo vecchio velho ישן старый παλιο قديم
royal reale royale real מלכותי
golden gold oro זהב золотой χρυσο ذهبي
red rosso rojo rouge rot rote אדום красный κοκκινο احمر
green verde vert grun grune ירוק зеленый πρασινο اخضر
black negro nero noir schwarz schwarze שחור черный μαυρο اسود
white bianco blanco blanc weiss weisse לבן белый λευκο ابيض
blue blu azul bleu blau כחול синий μπλε ازرق
sea mer mar mare meer ים море θαλασσα بحر
palace palais palazzo palacio palast ארמון дворец قصر
king roi rey re konig מלך король βασιλιας ملك
family familia famille famiglia משפחה семья οικογενεια عائلة
sons son fils figli hijos filhos sohne בנים בניו сыновья сыновей υιοι اولاد وأولاده
daughters filles figlie hijas tochter בנות בנותיו дочери بنات
`

// Kind is how much a word of a name distinguishes.
type Kind uint8

// The kinds of words, from the most telling to the least.
const (
	// Distinctive is any word that is in no table.
	Distinctive Kind = iota
	// Food is a dish, a cuisine or a common adjective: many venues of a city share it.
	Food
	// Venue is a word for the kind of place, which sources add and drop.
	Venue
	// Stop is an article, a preposition, a conjunction or a legal form.
	Stop
)

// weights is what a word of each kind counts for beside a distinctive one.
var weights = [...]float64{Distinctive: 1, Food: 0.45, Venue: 0.25, Stop: 0.06}

// Weight returns what a word of the kind counts for, in (0,1].
func (k Kind) Weight() float64 { return weights[k] }

// Entry is what the tables know of a word.
type Entry struct {
	// Concept is the same for words that mean the same, in any language.
	Concept string
	Kind    Kind
}

// Name looks up a folded word of a name, with or without the Hebrew words for "the" and "and", which are written on to it.
func Name(word string) (Entry, bool) {
	if e, ok := names[word]; ok {
		return e, ok
	}
	rest, and := strings.CutPrefix(word, "ו")
	rest, the := strings.CutPrefix(rest, "ה")
	if !and && !the {
		return Entry{}, false
	}
	e, ok := names[rest]
	if !ok && and && the { // a word that starts with the letter of the article
		e, ok = names["ה"+rest]
	}
	return e, ok && len(rest) > 2
}

var names = build(map[Kind]string{Stop: stopWords, Venue: venueWords, Food: foodWords})

// build reads tables of lines: each line is a concept, its first word names it.
func build(tables map[Kind]string) map[string]Entry {
	out := make(map[string]Entry, 1024)
	for _, kind := range []Kind{Food, Venue, Stop} { // a word in two tables tells the less
		for line := range strings.SplitSeq(tables[kind], "\n") {
			words := strings.Fields(line)
			for _, w := range words {
				out[key(w)] = Entry{Concept: words[0], Kind: kind}
			}
		}
	}
	return out
}

// key returns a word of a table in the form in which texts are looked up.
func key(word string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '&' || r == '@' {
			return r
		}
		return -1
	}, text.Fold(word))
}

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
