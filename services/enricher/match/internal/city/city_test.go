package city_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/city"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want city.Agreement
	}{
		{"", "", city.Unknown},
		{"Haifa", "", city.Unknown},
		{"Haifa", "HAIFA", city.Same},
		{"New York", "New York City", city.Same},
		{"NYC", "New York", city.Same},
		{"LA", "Los Angeles", city.Same},
		{"SLC", "Salt Lake City", city.Same},
		{"SLC", "Salt Lake", city.Differs},
		{"W. Hollywood", "West Hollywood", city.Same},
		{"St. Petersburg", "Санкт-Петербург", city.Same},
		{"Tel Aviv", "Tel Aviv-Yafo", city.Same},
		{"תל אביב", "Tel Aviv", city.Same},
		{"תל אביב-יפו", "Tel-Aviv", city.Same},
		{"חיפה", "Haifa", city.Same},
		{"ירושלים", "Jerusalem", city.Same},
		{"القدس", "Jerusalem", city.Same},
		{"جدة", "Jeddah", city.Same},
		{"Москва", "Moscow", city.Same},
		{"Αθήνα", "Athens", city.Same},
		{"München", "Munich", city.Same},
		{"Köln", "Cologne", city.Same},
		{"Roma", "Rome, Italy", city.Same},
		{"Portland", "Portlnad", city.Same},
		{"75008 Paris", "Paris", city.Same},
		{"Paris", "London", city.Differs},
		{"תל אביב", "Haifa", city.Differs},
		{"New York", "New Orleans", city.Differs},
		{"San Jose", "San Francisco", city.Differs},
		{"台北", "Taipei", city.Unknown},
	} {
		a, b := city.Parse(test.a), city.Parse(test.b)
		for range 2 {
			got := city.Compare(&a, &b, nil, nil)
			check.That(t, got == test.want, "%q and %q: %d, want %d", test.a, test.b, got, test.want)
			a, b = b, a
		}
	}
}

// TestCityInTheAddress checks that a city that only the other's address names is the same, and that none is made up.
func TestCityInTheAddress(t *testing.T) {
	t.Parallel()
	none, haifa := city.Parse(""), city.Parse("Haifa")
	address := strings.Fields("herzl 5 haifa israel")
	check.Same(t, "in the address", city.Compare(&none, &haifa, address, nil), city.Same)
	check.Same(t, "nowhere", city.Compare(&none, &haifa, strings.Fields("herzl 5"), nil), city.Unknown)
	other := city.Parse("Acre")
	check.Same(t, "a suburb whose address names the city", city.Compare(&other, &haifa, address, nil), city.Same)
}

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
					check.That(t, i != j || got == city.Same, "%q and %q: %d", x, y, got)
					check.That(t, i == j || got != city.Same || joined(x, y), "%q is %q", x, y)
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
