package city_test

import (
	"testing"

	"github.com/expediter-io/expediter/services/enricher/match/internal/city"
)

// names lists cities, each in the languages in which sources name it.
var names = [][]string{
	{"Vienna", "Wien", "Vienne", "Вена", "וינה"},
	{"Rome", "Roma", "Рим", "רומא"},
	{"Milan", "Milano", "Mailand", "Милан", "מילאנו"},
	{"Prague", "Praha", "Прага", "פראג"},
	{"Warsaw", "Warszawa", "Варшава", "ורשה"},
	{"Moscow", "Moskva", "Москва", "מוסקבה"},
	{"Athens", "Αθήνα", "Афины", "אתונה"},
	{"Thessaloniki", "Θεσσαλονίκη", "Салоники", "סלוניקי"},
	{"Lisbon", "Lisboa", "Лиссабон", "ליסבון"},
	{"Copenhagen", "København", "Kopenhagen"},
	{"Cairo", "القاهرة", "קהיר"},
	{"Beirut", "Beyrouth", "بيروت", "ביירות"},
	{"Damascus", "دمشق", "Dimashq"},
	{"Amman", "عمان"},
	{"Dubai", "دبي"},
	{"Jeddah", "جدة"},
	{"Jerusalem", "ירושלים", "القدس", "Иерусалим", "Yerushalayim"},
	{"Jaffa", "Yafo", "יפו", "يافا"},
	{"Haifa", "חיפה", "حيفا", "Хайфа"},
	{"Tel Aviv", "תל אביב", "Tel-Aviv Yafo", "תל אביב - יפו", "ת\"א"},
	{"Ramat Gan", "רמת גן", "Рамат-Ган"},
	{"Netanya", "נתניה", "Нетания"},
	{"Nazareth", "נצרת", "الناصرة"},
	{"St. Petersburg", "Saint Petersburg", "Санкт-Петербург", "СПб"},
	{"Kyiv", "Kiev", "Київ", "Киев"},
	{"Odesa", "Odessa", "Одеса", "Одесса"},
	{"Kazan", "Казань"},
	{"Yekaterinburg", "Екатеринбург"},
	{"Tokyo", "東京"},
	{"Beijing", "北京", "Peking"},
	{"Mexico City", "Ciudad de México", "CDMX"},
	{"Geneva", "Genève", "Genf", "Женева"},
	{"Patras", "Πάτρα", "Patra"},
}

// TestAliases compares every name of a city with every other of it, and with those of all other cities.
func TestAliases(t *testing.T) {
	t.Parallel()
	for i, one := range names {
		for j, other := range names {
			for _, x := range one {
				for _, y := range other {
					a, b := city.Parse(x), city.Parse(y)
					got := city.Compare(&a, &b, nil, nil)
					if i == j && got != city.Same {
						t.Errorf("%q and %q: %d", x, y, got)
					}
					if i != j && got == city.Same && !joined(x, y) {
						t.Errorf("%q is %q", x, y)
					}
				}
			}
		}
	}
}

// joined reports whether two names are those of Tel Aviv and Jaffa, which are one city.
func joined(x, y string) bool {
	jaffa := map[string]bool{}
	for _, i := range []int{17, 19} {
		for _, n := range names[i] {
			jaffa[n] = true
		}
	}
	return jaffa[x] && jaffa[y]
}
