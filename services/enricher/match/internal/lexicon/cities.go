package lexicon

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
