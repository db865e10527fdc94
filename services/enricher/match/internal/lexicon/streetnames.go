package lexicon

import "strings"

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
