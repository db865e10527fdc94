package lexicon

import "strings"

// City returns the one name under which a city of several names is compared. The word is folded and without spaces.
func City(joined string) string {
	c, _ := KnownCity(joined)
	return c
}

// KnownCity is City, and reports whether the tables have the city. Two that they have are one only under one name.
func KnownCity(joined string) (string, bool) {
	if c, ok := cities[joined]; ok {
		return c, true
	}
	return joined, false
}

// Cities whose names in two languages neither look nor sound alike, or that are often abbreviated.
var cities = concepts(`
losangeles la
newyork nyc newyorkcity ny manhattan
sanfrancisco sf
washington washingtondc dc
lasvegas vegas
philadelphia philly
munich munchen monaco-di-baviera мюнхен
cologne koln colonia кельн
vienna wien viena vienne вена וינה
rome roma рим רומא
florence firenze florenz florencia флоренция פירנצה
venice venezia venedig venecia venise венеция ונציה
naples napoli neapel napoles неаполь נאפולי
milan milano mailand милан מילאנו
turin torino турин
genoa genova genua генуя
prague praha prag praga прага פראג
warsaw warszawa warschau varsovia варшава ורשה
moscow moskva moskau moscou москва מוסקבה
athens athina athen atenas αθηνα афины אתונה
thessaloniki salonica saloniki θεσσαλονικη салоники סלוניקי
patras patra πατρα патры
nicosia lefkosia λευκωσια
lisbon lisboa lissabon lisbonne лиссабон ליסבון
seville sevilla
geneva geneve genf ginebra ginevra женева
zurich zuerich цюрих
brussels bruxelles brussel bruselas
antwerp antwerpen anvers
thehague denhaag haag
copenhagen kobenhavn kopenhagen
gothenburg goteborg
bucharest bucuresti bukarest
belgrade beograd белград
cairo alqahira alqahirah قاهره القاهره קהיר
alexandria iskandariya alexandrie اسكندريه الاسكندريه александрия
jerusalem yerushalayim ירושלימ القدس alquds иерусалим
jaffa yafo יפו يافا яффо яффа
haifa חיפה حيفا хайфа
acre akko akka עכו عكا
nazareth natzrat nazrat נצרת الناصره
telaviv telavivyafo telavivjaffa tlv תא תלאביב תלאביביפו
hebron khalil الخليل
beirut beyrouth بيروت ביירות
damascus dimashq دمشق
algiers alger الجزائر
tunis tunisi تونس
casablanca الدارالبيضاء
riyadh الرياض
dubai دبي
abudhabi ابوظبي
mecca makkah مكه
istanbul constantinople стамбул
stpetersburg saintpetersburg sanktpeterburg санктпетербург петербург спб питер
kyiv kiev київ киев
lviv lvov львов львів
beijing peking 北京
tokyo tokio 東京
seoul 서울 сеул
shanghai 上海
hongkong 香港 hk
bangkok krungthep กรงเทพ
mexicocity mexico ciudaddemexico cdmx mexicodf
`)

// Region reports whether a folded word is a state, a province or a country, which addresses carry or leave out.
func Region(word string) bool { return regions[word] }

var regions = func() map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(`al ak az ar ca co ct dc fl ga hi ia id il in ks ky ma md me mi mn mo ms mt nc nd ne nh nj nm nv ny oh ok or pa ri sc sd tn tx ut va vt wa wi wv wy
		ab bc mb nb nl ns on pe qc sk nsw vic qld
		usa us america uk gb england scotland wales ireland eire canada australia france deutschland germany espana spain italia italy osterreich austria schweiz suisse switzerland
		israel ישראל اسرائيل israël russia россия рф ukraine україна украина greece ελλαδα hellas portugal nederland netherlands belgium belgie belgique polska poland turkey turkiye
		egypt مصر lebanon لبنان jordan الاردن uae الامارات brasil brazil mexico argentina sverige sweden norge norway danmark denmark suomi finland`) {
		out[key(w)] = true
	}
	return out
}()
