package lexicon

import "strings"

// Part is what a word of an address is.
type Part uint8

// The parts of an address that are not the name of a street.
const (
	// Plain is any other word.
	Plain Part = iota
	// Type is a word for street, road, square.
	Type
	// Direction is a quarter of the compass.
	Direction
	// Unit starts a suite, floor or flat, whose number is not the house's.
	Unit
	// Cross starts a crossing street or a neighbour: what follows is not the street itself.
	Cross
	// NumberMark means that the next word is the house number.
	NumberMark
	// Building is a word for a mall, tower or hotel around the venue.
	Building
	// Filler means nothing.
	Filler
)

// AddressWord is what the tables know of a word of an address.
type AddressWord struct {
	// Canonical is the same for all spellings of the word.
	Canonical string
	Part      Part
}

// Address looks up a folded word of an address.
func Address(word string) (AddressWord, bool) {
	w, ok := addresses[word]
	return w, ok
}

// Canonical returns the one spelling of a word that Address knows, and nothing for others.
func Canonical(word string) string { return addresses[word].Canonical }

var addresses = func() map[string]AddressWord {
	out := make(map[string]AddressWord, 512)
	for _, t := range []struct {
		part  Part
		lines string
	}{{Filler, fillers}, {Building, buildings}, {Type, streetTypes}, {Direction, directions}, {Unit, units}, {Cross, crossings}, {NumberMark, numberMarks}} {
		for line := range strings.SplitSeq(t.lines, "\n") {
			words := strings.Fields(line)
			for _, w := range words {
				out[key(w)] = AddressWord{Canonical: words[0], Part: t.part}
			}
		}
	}
	return out
}()

// NumberedRoad reports whether the number after a word names the road: "highway 101".
func NumberedRoad(word string) bool {
	switch word {
	case "highway", "hwy", "hiway", "route", "rte", "interstate", "us", "sr", "km", "ca":
		return true
	}
	return false
}

// StreetSuffix splits a compound such as "hauptstrasse", "kerkstraat" or "drottninggatan" into its stem and the type.
// The stem has at least three letters.
func StreetSuffix(word string) (stem, canonical string, ok bool) {
	for _, s := range suffixes {
		if stem, found := strings.CutSuffix(word, s.suffix); found && len(stem) >= 3 {
			return stem, s.canonical, true
		}
	}
	return word, "", false
}

var suffixes = []struct{ suffix, canonical string }{
	{"strasse", "street"},
	{"straat", "street"},
	{"str", "street"},
	{"gasse", "lane"},
	{"gatan", "street"},
	{"gata", "street"},
	{"gaten", "street"},
	{"gade", "street"},
	{"vagen", "road"},
	{"veien", "road"},
	{"vej", "road"},
	{"allee", "avenue"},
	{"laan", "avenue"},
	{"plein", "square"},
	{"platz", "square"},
	{"gracht", "canal"},
	{"katu", "street"},
	{"kade", "quay"},
	{"weg", "road"},
}

const streetTypes = `
street st str strt straat strasse rue calle c cl via v vicolo rua r ul ulitsa ulica ulice utca u sokak sok sk gatan gata gade gt straße ул улица вул вулиця οδος οδ רחוב רח שדרה شارع ش nahj katu cadde cad caddesi dori rehov rehov rechov sharia
avenue ave av aven avda avd avenida aven avn allee allée alle laan пр просп проспект пр-т пр-кт prosp λεωφ λεωφορος sderot שדרות שד جادة viale vle prospekt
boulevard blvd blv boul bd bvd bulvar bulevar bulevard boulvard бул бульвар б-р булевард bulwar
road rd weg vej vei vagen väg route rte chemin carretera ctra camino cno estrada drum дорога דרך derech derekh طريق caminho
lane ln la gasse gässchen ruelle callejon pasaje travessa tv пер переулок סמטת סמטה simtat זقاق strada str-la
drive dr drv
court ct crt
circle cir
terrace ter terr
square sq plaza plz piazza pza pzza p.za place pl platz plein plac praca praça largo lgo piata plateia πλατεια πλ пл площадь ככר כיכר kikar ميدان ساحة meydan meydani namesti ter
parkway pkwy pky pwy
highway hwy hiway
freeway fwy
expressway expy
alley aly
crescent cres
quay quai kai kaj kade muelle наб набережная lungomare
passage psge passaggio galerie galleria
promenade prom promenada טיילת
way wy
turnpike tpke
pike pk
trail trl
bridge
row
walk
mews
close
gardens gdns
steps
embankment emb
шоссе ш
corso cso c.so
paseo po pso
ronda rda
`

const directions = `
n north nord norte noord norden צפון север северная شمال
s south sud sur zuid sul דרום юг южная جنوب
e east est este oost ost leste מזרח восток восточная شرق
w west ouest oeste ovest מערב запад западная غرب
ne northeast
nw northwest
se southeast
sw southwest
`

const units = `
suite ste
floor fl flr etage etg stock og piso andar piano verdieping kat קומה этаж όροφος οροφος طابق étage
unit
apt apartment appartement wohnung flat דירה кв квартира شقة daire
room rm
level lvl
stall stand kiosk
lot
bldg building gebaude бутик корп корпус стр строение בניין בנין مبنى bina blok block
shop локал local loc lokal חנות
box
gate
`

const crossings = `
between btwn bet btw entre zwischen בין между μεταξυ بين
at @ angle ecke
near nr pres junto ליד рядом كنار
corner cnr cor esquina esq ang angolo פינת угол γωνια
opposite opp gegenuber frente מול напротив απεναντι
off
behind
across
inside dentro
below under
above
in
`

const numberMarks = `
no nr num number numero nº n° no. номер д дом מס מספר رقم αρ
`

const buildings = `
mall center centre centro centrum plaza shopping shops arcade קניון מרכז центр тц трц مول مركز
hotel casino resort inn
tower towers מגדל מגדלי برج
airport terminal station נמל תחנה
complex village park condominium
mailing
`

const fillers = `
the and of de la le les el los las du des der die das del della dei dello delle degli al alla di da do den dem het i и ה של ال
του τησ των ο η το
on to
`
