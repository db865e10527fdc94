package catalog_test

import (
	"bytes"
	_ "embed" // the words
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/catalog"
)

// giraffe is the venue of all files.
func giraffe() provider.Venue {
	return provider.Venue{
		ID: "7", URL: "https://example.com/giraffe",
		Place: match.Place{
			Address: "Ibn Gabirol 49", Aliases: []string{"ג'ירף", "Giraffe Noodles"}, City: "Tel Aviv",
			Location: &match.Point{Lat: 32.0767, Lng: 34.7818}, Name: "Giraffe", Phone: "03-691-6294",
		},
	}
}

func TestReadFormats(t *testing.T) {
	t.Parallel()
	const object = `{"id":7,"name":"Giraffe","address":"Ibn Gabirol 49","city":"Tel Aviv","phone":"03-691-6294","url":"https://example.com/giraffe",
		"aliases":["ג'ירף","Giraffe Noodles"],"kind":"restaurant","tags":["x"],"open":true`
	tests := map[string]string{
		"array":           "\n[ " + object + `,"lat":32.0767,"lng":"34.7818"} ]` + "\n",
		"nested location": "[" + object + `,"location":{"lat":32.0767,"lng":34.7818,"type":"Point"}}]`,
		"lines":           strings.ReplaceAll(object, "\n", " ") + `,"lat":32.0767,"lng":34.7818}` + "\r\n\r\n",
		"byte order mark": "\ufeff[" + object + `,"lat":32.0767,"lng":34.7818}]`,
		"csv": "id,name,address,city,phone,lat,lng,url,aliases,kind\n" +
			"7,Giraffe,Ibn Gabirol 49,Tel Aviv,03-691-6294,32.0767,34.7818,https://example.com/giraffe,ג'ירף|Giraffe Noodles,restaurant\n",
		"csv of a spreadsheet": "\ufeffname,id,address,city,phone,lat,lng,url,aliases,kind,Notes\r\n" +
			" Giraffe ,7,\"Ibn Gabirol 49\",Tel Aviv,03-691-6294,32.0767,34.7818,https://example.com/giraffe,\"ג'ירף;Giraffe Noodles\",restaurant,good\r\n",
	}
	for name, file := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := find(t, read(t, file), match.Place{Name: "giraffe"})
			check.Equal(t, got, []provider.Venue{giraffe()})
		})
	}
}

func TestURLOfAVenueThatHasNone(t *testing.T) {
	t.Parallel()
	c := read(t, "id,name,city\na/b,Café Nord,Tel Aviv\n")
	check.Equal(t, find(t, c, match.Place{Name: "Nord"})[0].URL, "https://catalog.invalid/venues/a%2Fb")
}

func TestBadRowsAreReportedAllAtOnce(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		file string
		want []string
	}{
		"csv": {
			"id,name,lat,lng,url\n" +
				"1,Good,,,\n" +
				",Nameful,,,\n" +
				"3,,,,\n" +
				"1,Again,,,\n" +
				"5,Half,32,,\n" +
				"6,Words,north,34,\n" +
				"7,Far,132,34,\n" +
				"8,Bad link,,,javascript:alert(1)\n" +
				"9,Short\n" +
				"\"10,\nTwo lines,,,\n",
			[]string{
				"line 3: the id is missing",
				"line 4: the name is missing",
				`line 5: the id "1" is that of line 2 as well`,
				"line 6: one of lat and lng is missing",
				`line 7: the lat "north" is not a number`,
				"line 8: latitude 132, longitude 34 is no place on earth",
				`line 9: the url "javascript:alert(1)": it does not start with https:// or http://`,
				"line 10: it has 2 columns, the header has 5",
				`line 11: it is not CSV: extraneous or missing " in quoted-field`,
			},
		},
		"lines": {
			`{"id":"1","name":"A"}` + "\n" + `{"id":"2","name":` + "\n" + `["3"]` + "\n\n" +
				`{"id":true,"name":"D"}` + "\n" + `{"id":"6","name":"F","aliases":[7]}` + "\n" + `{"id":"7","name":"G","location":[1,2]}` + "\nnull\n",
			[]string{
				"line 2: it is not a JSON object: unexpected end of JSON input",
				"line 3: it is not a JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage",
				"line 5: the id is neither a text nor a number; the id is missing",
				"line 6: the aliases are not a list of texts",
				"line 7: the location is not an object with lat and lng",
				"line 8: it is not a JSON object: null",
			},
		},
		"sizes": {
			"id,name,phone\n" + strings.Repeat("x", 257) + ",A,\n2,B," + strings.Repeat("1", 4097) + "\n3,\xff,\n",
			[]string{
				"line 2: the id has 257 bytes, more than 256",
				"line 3: the phone has 4097 bytes, more than 4096",
				"line 4: the name is not UTF-8",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := catalog.Read(strings.NewReader(test.file), "shelf")
			check.Equal(t, rowErrors(t, err), test.want)
			for _, row := range test.want {
				check.That(t, strings.Contains(err.Error(), row), "the error does not hold %q:\n%v", row, err)
			}
		})
	}
}

func TestBadRowsThatAreNamedAreBounded(t *testing.T) {
	t.Parallel()
	_, err := catalog.Read(strings.NewReader("id,name\n"+strings.Repeat("1,\n", 1500)), "shelf")
	if rows := rowErrors(t, err); len(rows) != 1000 || !strings.HasSuffix(err.Error(), "and 500 more") {
		t.Errorf("%d rows named in %d bytes", len(rows), len(err.Error()))
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ file, says string }{
		"empty":      {"", "no venues"},
		"no rows":    {"id,name\n", "no venues"},
		"no id":      {"name,city\nA,B\n", "no column id"},
		"no name":    {"id,city\nA,B\n", "no column name"},
		"cut off":    {`[{"id":"1","name":"A"}`, "too early"},
		"a huge row": {"id,name\n1,\"" + strings.Repeat("x", 300<<10), "more than 262144 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check.ErrorContains(t, check.Err(catalog.Read(strings.NewReader(test.file), "shelf")), test.says)
		})
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "venues.csv")
	check.OK(t, os.WriteFile(path, []byte("id,name\n1,Giraffe\n"), 0o600))
	c, err := catalog.Open(path, "shelf")
	check.That(t, err == nil && c.Name() == "shelf", "Open = %v, %v", c, err)
	check.ErrorIs(t, check.Err(catalog.Open("-", "shelf")), os.ErrNotExist)
	_, err = catalog.Open(path+"x", "shelf")
	check.That(t, errors.Is(err, os.ErrNotExist) && strings.Contains(err.Error(), "venues.csvx"), "error of a missing file = %v", err)
	check.OK(t, os.WriteFile(path, []byte("id\n"), 0o600))
	check.ErrorContains(t, check.Err(catalog.Open(path, "shelf")), "venues.csv:1", "no column name")
}

// FuzzRead checks that no file makes the reader fall over, or lets a venue in that
// cannot be given out.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		"id,name\n1,A\n", "id;name\n\"1;A\n", `[{"id":1,"name":"A","location":{"lat":1,"lng":2}}]`, `{"id":1,"name":"A","aliases":["b"]}`,
		"[", "{", "[1,{}]", "\xff\xfe", "id,name,lat,lng\n1,A,1e999,NaN\n", "[\n\n{\"id\":\"\\ud800\",\"name\":\"\\u0000\"}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := catalog.Read(bytes.NewReader(file), "shelf")
		if bad, ok := errors.AsType[*catalog.LoadError](err); ok {
			for _, e := range bad.Rows {
				var line int
				n, _ := fmt.Sscanf(e, "line %d: ", &line)
				check.That(t, n == 1 && line >= 1 && strings.Count(string(file), "\n")+1 >= line, "bad row %q of %q", e, file)
			}
		}
		if err != nil {
			return
		}
		venues, err := c.Search(t.Context(), match.Place{Name: "A", Phone: "03-1234567", Address: "1 A", Location: &match.Point{Lat: 1, Lng: 2}})
		check.OK(t, err)
		for _, v := range venues {
			check.That(t, v.ID != "" && v.Name != "" && strings.HasPrefix(v.URL, "http"), "venue %+v", v)
		}
	})
}

// TestSearchMissesNothing compares each place with every venue of generated catalogues. All venues that the matcher would link must be
// among the candidates, and the decision must be that of the whole catalogue. CATALOG_ROUNDS draws as many other catalogues: without it
// they are always the same, so that a miss is the fault of a change.
func TestSearchMissesNothing(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(os.Getenv("CATALOG_ROUNDS"))
	seed := uint64(1)
	if rounds > 0 {
		seed = rand.Uint64()
	}
	names := spellings(t)
	var linked, missed, candidates atomic.Int64
	for round := range max(1, rounds) {
		var group sync.WaitGroup
		for _, size := range []int{50, 500, 2000} {
			group.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(round*10_000+size)))
				venues := town(rng, size)
				for i := range size / 2 { // the other half has the names that are written in several ways
					venues[i].Name = one(rng, one(rng, names))
					venues[i].Aliases = nil
				}
				c, all := stocked(t, venues), make([]*match.Prepared, len(venues))
				for i, v := range venues {
					all[i] = match.Prepare(v.Place)
				}
				for range min(400, 300_000/size) { // each is compared with all venues, twice
					place := venues[rng.IntN(len(venues))].Place
					if forms := formsOf(names, place.Name); forms != nil {
						place.Name = one(rng, forms)
					}
					if place = retold(rng, place); rng.IntN(2) == 0 { // nothing but the name finds the venue
						place.Address, place.Phone, place.Location = "", "", nil
					}
					group.Go(func() { // many at once: searches use the same memory in turn
						got := check.Must(c.Search(t.Context(), place))(t)
						candidates.Add(int64(len(got)))
						l, m := compared(t, place, got, venues, all)
						linked.Add(l)
						missed.Add(m)
					})
				}
			})
		}
		group.Wait()
	}
	t.Logf("seed %d: %d links, %d missed, %d candidates", seed, linked.Load(), missed.Load(), candidates.Load())
	check.That(t, linked.Load() >= 600 && missed.Load() == 0, "seed %d: %d of %d links missed", seed, missed.Load(), linked.Load())
}

// compared counts the venues of a catalogue that the matcher links, and those that are missing from the candidates. Another decision is
// a link that was missed.
func compared(t *testing.T, place match.Place, got, venues []provider.Venue, all []*match.Prepared) (linked, missed int64) {
	t.Helper()
	query := match.Prepare(place)
	for i := range all {
		if query.Best(all[i:i+1]).Outcome != match.Found {
			continue
		}
		linked++
		if !holds(got, venues[i].ID) {
			missed++
			t.Logf("missed %+v for %+v: %s", venues[i].Place, place, query.Compare(all[i]))
		}
	}
	want, have := query.Best(all), match.Best(place, provider.Places(got))
	if want.Outcome != have.Outcome || want.Outcome == match.Found && want.Score != have.Score {
		missed++
		t.Logf("decided %s, not %s, for %+v: %+v: %s", have.Outcome, want.Outcome, place, venues[want.Index].Place, want.Evidence)
	}
	return linked, missed
}

func one[T any](rng *rand.Rand, of []T) T { return of[rng.IntN(len(of))] }

// spellings are names, each in the ways in which sources write it.
func spellings(t *testing.T) [][]string {
	t.Helper()
	all := [][]string{
		{"Three Brothers", "3 Brothers", "Tre Fratelli", "Three Bros."},
		{"Fifth Avenue Grill", "5th Ave Grill"},
		{"House of Pancakes", "בית הפנקייק"},
		{"Twenty One Club", "21 Club"},
		{"Five Guys", "5 Guys"},
		{"Seven Seas", "7 Seas"},
		{"Steakhouse 55", "Steak House 55"},
		{"Intl. Noodle Bar", "International Noodle Bar"},
		{"Smørrebrød", "Smoerrebroed"},
		{"Øst", "Oest"},
		{"Café Nô", "Caf&eacute; No"},
		{"Fish House", "بيت السمك"},
		{"Golden Dragon", "Золотой Dragon"},
		{"St. John", "Saint John"},
		{"Mc Donalds", "McDonald's", "מקדונלד'ס"},
		{"אור וים", "אור & ים"},
		{"Union Sq. Cafe", "Union Square Cafe"},
		{"P.F. Chang's", "PF Changs"},
		{"KFC", "Kentucky Fried Chicken"},
	}
	all = append(all, check.Rows(t, "../../match/testdata/brands.tsv")...)
	for _, row := range check.Rows(t, "../../match/testdata/sounds.tsv") {
		if row[0][0] != '-' {
			all = append(all, row[1:3])
		}
	}
	return all
}

func formsOf(names [][]string, name string) []string {
	for _, forms := range names {
		if slices.Contains(forms, name) {
			return forms
		}
	}
	return nil
}

func holds(venues []provider.Venue, id string) bool {
	return slices.ContainsFunc(venues, func(v provider.Venue) bool { return v.ID == id })
}

// TestEachAgreementFindsAVenue wants a venue found by any one thing that is known of it.
func TestEachAgreementFindsAVenue(t *testing.T) {
	t.Parallel()
	venues := town(rand.New(rand.NewPCG(1, 2)), 500)
	want := provider.Venue{ID: "wanted", Place: match.Place{
		Address: "Yehuda HaLevi 205", City: "Tel Aviv", Location: &match.Point{Lat: 32.5, Lng: 34.9}, Name: "Quattrocento", Phone: "03-555-0199",
	}}
	c := stocked(t, append(venues, want))
	tests := map[string]match.Place{
		"name":             {Name: "quattrocento"},
		"word of the name": {Name: "Quattrocento by the Sea"},
		"misspelt name":    {Name: "Quatrocenta"},
		"other script":     {Name: "קוואטרוצ'נטו"},
		"telephone":        {Name: "Moses", Phone: "+972 3 5550199"},
		"address":          {Name: "Moses", Address: "205 Yehuda Halevi St."},
		"neighbourhood":    {Name: "Moses", Location: &match.Point{Lat: 32.5004, Lng: 34.9004}},
		"a cell to the SW": {Name: "Moses", Location: &match.Point{Lat: 32.4996, Lng: 34.8996}},
	}
	for name, place := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check.That(t, holds(find(t, c, place), "wanted"), "not among the candidates for %+v", place)
		})
	}
}

// TestSearchByMeaning finds names that share a number, a translated word or a sound among more names than a search returns, which share
// the other word.
func TestSearchByMeaning(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"Three Brothers", "3 Brothers"},
		{"Seven Seas", "7 Seas"},
		{"Twenty One Club", "21 Club"},
		{"Fifth Element", "5th Element"},
		{"שלושה אחים", "3 אחים"},
		{"Бургер Кинг", "Burger King"},
		{"בית הדג", "House of Fish"},
		{"Красный Dragon", "Red Dragon"},
		{"ג'ירף", "Giraffe"},
		{"בורגרסבר", "Restaurant Burgers Bar"}, // two of the three words are written as one
		{"Restaurant Burgers Bar", "בורגרסבר"},
		{"Steakhouse Luigi Rossi", "Steak House Rossi Luigi"},
		{"Блэкбёрд Cafe", "Cafe Black Bird"},
	} {
		words := strings.Fields(pair[1])
		var crowd []provider.Venue
		for i := range 200 {
			other := slices.Clone(words)
			other[0] = coined(i * 7)
			crowd = append(crowd, provider.Venue{ID: strconv.Itoa(i), Place: match.Place{Name: strings.Join(other, " "), City: "Troy"}})
		}
		c := stocked(t, append(crowd, provider.Venue{ID: "wanted", Place: match.Place{Name: pair[1], City: "Troy"}}))
		got := find(t, c, match.Place{Name: pair[0], City: "Troy"})
		check.That(t, holds(got, "wanted"), "%q is not found by %q", pair[1], pair[0])
	}
}

// TestCommonWords wants a venue whose only word all venues have, also of a place with a rarer key.
func TestCommonWords(t *testing.T) {
	t.Parallel()
	venues := make([]provider.Venue, 20_000)
	for i := range venues {
		venues[i] = provider.Venue{ID: strconv.Itoa(i), Place: match.Place{Name: "Pizza " + coined(i), City: "Troy", Phone: strconv.Itoa(5_550_000_000 + i)}}
	}
	venues[15_123].Name = "Pizza"
	c := stocked(t, venues)
	got := find(t, c, match.Place{Name: "Pizza", City: "Troy", Phone: venues[7].Phone})
	check.That(t, holds(got, "15123") && holds(got, "7"), "only %d candidates", len(got))
}

func TestNearestOfAChainComeFirst(t *testing.T) {
	t.Parallel()
	var venues []provider.Venue
	for i := range 500 {
		lat := 29.5 + 0.01*float64(i*7%500)
		venues = append(venues, provider.Venue{
			ID: strconv.Itoa(i), Place: match.Place{Name: "Golda", Location: &match.Point{Lat: lat, Lng: 34.9}},
		})
	}
	c := stocked(t, venues)
	got := find(t, c, match.Place{Name: "Golda", Location: &match.Point{Lat: 32, Lng: 34.9}})
	check.Require(t, len(got) == 50, "%d candidates, want 50", len(got))
	for i, v := range got {
		if d := v.Location.Lat - 32; d < -0.2501 || d > 0.2501 || (i == 0 && (d < -1e-9 || d > 1e-9)) {
			t.Errorf("candidate %d is at latitude %g", i, v.Location.Lat)
		}
	}
}

func TestUnknownPlaces(t *testing.T) {
	t.Parallel()
	c := read(t, "id,name,city,lat,lng\n1,Giraffe,Tel Aviv,32.07,34.78\n")
	got, err := c.Search(t.Context(), match.Place{Name: "Quattrocento", City: "Tel Aviv", Location: &match.Point{Lat: 31.7, Lng: 35.2}})
	check.That(t, err == nil && len(got) == 0, "Search = %v, %v; want the empty answer", got, err)
}

func TestSearchesThatCannotBeMade(t *testing.T) {
	t.Parallel()
	c := read(t, "id,name\n1,Giraffe\n")
	got, err := c.Search(t.Context(), match.Place{City: "Tel Aviv"})
	check.That(t, provider.KindOf(err) == provider.KindUnsupported && !provider.Temporary(err) && got == nil,
		"Search for nothing = %v, %v; want unsupported", got, err)
}

// TestEndlessFieldsCostNoMoreThanLongOnes searches with fields that nobody writes. It
// would not end within the test's time if all pairs of words were looked at.
func TestEndlessFieldsCostNoMoreThanLongOnes(t *testing.T) {
	t.Parallel()
	c := read(t, "id,name,address\n1,Giraffe,Ibn Gabirol 49\n")
	place := match.Place{Address: strings.Repeat("49 b ", 1_000_000), Name: strings.Repeat("giraffe ", 1_000_000)}
	check.That(t, holds(find(t, c, place), "1"), "the venue is not among the candidates")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read loads a file that is expected to be good.
func read(t *testing.T, file string) *catalog.Catalog {
	t.Helper()
	return check.Must(catalog.Read(strings.NewReader(file), "shelf"))(t)
}

// stocked loads a file of the venues.
func stocked(t testing.TB, venues []provider.Venue) *catalog.Catalog {
	t.Helper()
	var file bytes.Buffer
	rows := json.NewEncoder(&file)
	for _, v := range venues {
		row := map[string]any{
			"id": v.ID, "name": v.Name, "address": v.Address, "aliases": v.Aliases, "city": v.City, "phone": v.Phone,
		}
		if v.Location != nil {
			row["location"] = map[string]float64{"lat": v.Location.Lat, "lng": v.Location.Lng}
		}
		check.OK(t, rows.Encode(row))
	}
	return check.Must(catalog.Read(&file, "shelf"))(t)
}

// find searches by name and wants one venue or more.
func find(t *testing.T, c *catalog.Catalog, place match.Place) []provider.Venue {
	t.Helper()
	venues := check.Must(c.Search(t.Context(), place))(t)
	check.Require(t, len(venues) != 0, "no candidates for %+v", place)
	return venues
}

// rowErrors are the bad rows of a file.
func rowErrors(t *testing.T, err error) []string {
	t.Helper()
	bad, ok := errors.AsType[*catalog.LoadError](err)
	check.Require(t, ok, "error = %v, want a *LoadError", err)
	return bad.Rows
}

//go:embed testdata/words.tsv
var wordsText string

// words are parts of names, in two scripts.
var words = slices.Collect(slices.Chunk(strings.Fields(wordsText), 2))

var streets = []string{
	"Dizengoff", "Ibn Gabirol", "Rothschild Blvd", "Allenby", "King George", "Ben Yehuda", "Bograshov", "Frishman", "Lilienblum",
	"Nahalat Binyamin", "HaArba'a", "Yirmiyahu", "Florentin", "Levinsky", "Salame Rd", "Herzl", "Ahad Ha'am", "Shenkin",
}

// town makes n venues of a city that is as dense as a real one, with chains.
func town(rng *rand.Rand, n int) []provider.Venue {
	venues := make([]provider.Venue, n)
	side := 0.0003 * float64(n) / 40 // A street's length grows with the town.
	for i := range venues {
		var latin, hebrew []string
		for range 1 + rng.IntN(3) {
			w := words[rng.IntN(len(words))]
			latin, hebrew = append(latin, w[0]), append(hebrew, w[1])
		}
		if n > 1000 { // Real names have rarer words too.
			latin = append(latin, coined(i))
		}
		venues[i] = provider.Venue{
			ID: strconv.Itoa(i),
			Place: match.Place{
				Address:  fmt.Sprintf("%s %d", streets[rng.IntN(len(streets))], 1+rng.IntN(200)),
				City:     "Tel Aviv",
				Location: &match.Point{Lat: 32.05 + side*rng.Float64(), Lng: 34.75 + side*rng.Float64()},
				Name:     strings.Join(latin, " "),
				Phone:    fmt.Sprintf("03-%07d", rng.IntN(10_000_000)),
			},
		}
		if rng.IntN(3) == 0 && n <= 1000 {
			venues[i].Aliases = []string{strings.Join(hebrew, " ")}
		}
	}
	return venues
}

// coined is a word that few other venues have.
func coined(i int) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	var b strings.Builder
	for i = i/3 + 7; i > 0; i /= len(consonants) * len(vowels) {
		b.WriteByte(consonants[i%len(consonants)])
		b.WriteByte(vowels[i/len(consonants)%len(vowels)])
	}
	return b.String()
}

// retold is a venue as another source tells of it.
func retold(rng *rand.Rand, place match.Place) match.Place {
	place.Aliases = nil
	if rng.IntN(3) == 0 {
		place.Phone = ""
	}
	if rng.IntN(4) == 0 {
		place.Address = ""
	} else if rng.IntN(3) == 0 {
		place.Address = strings.ToUpper(place.Address) + ", Tel Aviv-Yafo, Israel"
	}
	if rng.IntN(3) == 0 {
		place.Location = nil
	} else if place.Location != nil {
		place.Location = &match.Point{
			Lat: place.Location.Lat + (rng.Float64()-0.5)*0.0008, Lng: place.Location.Lng + (rng.Float64()-0.5)*0.0008,
		}
	}
	switch rng.IntN(6) {
	case 0: // a letter is lost
		if name := []rune(place.Name); len(name) > 4 {
			at := 1 + rng.IntN(len(name)-2)
			place.Name = string(name[:at]) + string(name[at+1:])
		}
	case 1: // two letters are swapped
		if name := []rune(place.Name); len(name) > 4 {
			at := 1 + rng.IntN(len(name)-3)
			name[at], name[at+1] = name[at+1], name[at]
			place.Name = string(name)
		}
	case 2: // the other script
		place.Name = inHebrew(place.Name)
	case 3:
		place.Name = "Restaurant " + place.Name
	case 4:
		place.Name += " - " + streets[rng.IntN(len(streets))]
	}
	return place
}

func inHebrew(name string) string {
	for _, w := range words {
		name = strings.ReplaceAll(name, w[0], w[1])
	}
	return name
}
