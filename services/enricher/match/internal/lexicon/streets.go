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

// StreetName returns what a word of a street's name means, the same in every language, and nothing for the words that
// streets do not translate, which are most. A street whose name is said otherwise in another language is met in these
// words only: "King George", "Independence Road", "Red Square".
func StreetName(word string) string {
	if c, ok := streetNames[word]; ok {
		return c
	}
	if rest, ok := strings.CutPrefix(word, "ה"); ok { // the Hebrew article
		if c, ok := streetNames[rest]; ok {
			return c
		}
	}
	if e, ok := Name(word); ok && e.Kind == Food { // adjectives, "new", "red"
		return e.Concept
	}
	return ""
}

// concepts reads lines of words that mean the same; the first names the meaning.
func concepts(table string) map[string]string {
	out := make(map[string]string, 1024)
	for line := range strings.SplitSeq(table, "\n") {
		words := strings.Fields(line)
		for _, w := range words {
			out[key(w)] = words[0]
		}
	}
	return out
}

// Words that streets are named after all over the world, with the cases in which they stand there.
var streetNames = concepts(`
point pt pointe punta
jaffa yafo yaffo yafa יפו يافا яффо яффа
king king roi rey re koenig konig מלך مלك ملك король короля βασιλεωσ
queen reine reina regina konigin מלכה מלכת ملكه королева королевы βασιλισσησ
prince prinz principe נסיך امير принца
president presidente נשיא رئيس президента προεδρου
saint st ste sainte san santa santo sankt святой святого святая agia agios agiou агиос αγιου αγιασ αγιοσ مار
rabbi rabi רב הרב רבי
doctor dr דר دكتور доктора
general generala generale אלוף генерала στρατηγου جنرال
martyrs shuhada شهداء חללי жертв
independence independencia independance indipendenza עצמאות استقلال независимости ανεξαρτησιασ
liberty freedom liberte libertad liberta חירות חרות حريه свободы ελευθεριασ
liberation liberacion liberazione שחרור تحرير освобождения
peace paix paz pace frieden שלום سلام мира ειρηνησ
victory victoire victoria vittoria ניצחון נצחון نصر победы νικησ
revolution revolucion rivoluzione מהפכה ثوره революции επαναστασεωσ
republic republique republica repubblica republik רפובליקה جمهوريه республики δημοκρατιασ
constitution constitucion costituzione חוקה دستور конституции συνταγματοσ
union יחוד اتحاد союза
unity וחדה אחדות وحده единства ενωσεωσ
nation nations אומה אומות امه наций
united מאוחדות متحده объединенных
university universite universidad universita universitat אוניברסיטה جامعه университетская університетська πανεπιστημιου
school ecole escuela scuola schule مدرسه школьная σχολειου
college מכללה כליה كليه
museum musee museo מוזיאון متحف музейная μουσειου
theatre theater theatre teatro תיאטרון مسرح театральная θεατρου
library bibliotheque biblioteca ספריה مكتبه библиотечная
hospital hopital مستشفى больничная νοσοκομειου
station gare estacion stazione bahnhof תחנה محطه вокзальная станционная σταθμου
airport aeroport aeropuerto aeroporto مطار аэропорта
port harbour harbor puerto porto hafen נמל ميناء портовая λιμανιου
church eglise iglesia chiesa kirche kirch כנסיה كنيسه церковная εκκλησιασ
synagogue كنيس
mosque mosquee mezquita מסגד مسجد جامع
cathedral cathedrale catedral duomo соборная
market marche mercado mercato markt שוק سوق рыночная αγορασ
gate porte puerta porta tor שער باب ворота πυλησ
bridge pont puente ponte brucke bruck גשר جسر мост моста γεφυρασ
tower tour torre turm מגדל برج башня πυργου
wall mur muro חומה سور
castle chateau castillo castello schloss טירה מצודה قلعه замок καστρου
mill moulin molino mulino muhle muhl טחנה طاحون мельничная μυλου
fountain fontaine fuente fontana brunnen מזרקה نافوره фонтанная
well spring source באר מעיין عين بير
garden gardens jardin giardino garten גן גינה حديقه садовая κηπου
park parc parque parco פארק منتزه парковая παρκου
forest bois bosque bosco wald יער غابه лесная δασουσ
field champs campo feld שדה حقل полевая
mountain mount mont monte berg הר جبل горная ορουσ
hill colline colina collina hugel גבעה גבעת تل تله
valley vallee valle tal עמק وادي долина κοιλαδασ
river riviere rio fiume fluss נהר نهر речная ποταμου
sea mer mar mare meer ים بحر морская θαλασσησ
beach plage playa spiaggia strand חוף شاطئ пляжная παραλιασ
lake lac lago see אגם بحيره озерная λιμνησ
sun soleil sol sole sonne שמש شمس солнечная ηλιου
rose roses rosa ורד ורדים ورد розы
olive olivier olivo זית زيتون ελιασ
palm palms palma תמר דקל نخيل пальмовая
prophets prophet propheten נביאים נביא انبياء نبي
pioneers חלוצים رواد пионерская
workers ouvriers פועלים عمال рабочая
soldiers חיילים جنود
heroes heros גיבורים ابطال героев ηρωων
students סטודנטים طلاب студенческая
fighters לוחמים مقاتلين бойцов
central centrale מרכזי מרכזית مركزي центральная κεντρικη
industrial תעשיה صناعه промышленная
commerce commercial מסחר تجاره торговая εμποριου
bank banque banco בנק بنك банка
post poste correo posta דואר بريد почтовая
red rouge roja rossa rote אדומה красная حمرا κοκκινη
new nouvelle nueva nuova neue חדשה новая جديده νεα
old vieille vieja vecchia alte ישנה старая قديمه παλαια
white blanche blanca bianca weisse לבנה белая بيضا
great grande grosse גדולה большая كبرى μεγαλη
small little petite pequena piccola kleine קטנה малая صغرى μικρη
upper haute alto alta superior ober עליון עליונה верхняя ανω
lower basse bajo baja inferior unter תחתון תחתונה нижняя κατω
soviet sovetskaya סובייטי советская
palestine פלסטין فلسطين палестины
jerusalem ירושלים قدس иерусалимская
`)
