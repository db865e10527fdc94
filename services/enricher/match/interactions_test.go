package match_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
)

// TestNearerIsNeverWorse moves one venue away from another and checks that the score only falls.
func TestNearerIsNeverWorse(t *testing.T) {
	t.Parallel()
	r := newRandom(t)
	for range rounds / 5 {
		a, b := r.place(), r.place()
		a.Address, b.Address = "", "" // an equal address outweighs a distance
		a.Location = at(32, 34)
		last := 2.0
		for _, degrees := range []float64{0, 0.0003, 0.001, 0.003, 0.01, 0.1, 10} {
			b.Location = at(32+degrees, 34)
			e := match.Compare(a, b)
			check.Require(t, !(e.Score > last+1e-9), "%+v\n%+v\n%v degrees apart: %s, nearer %v", a, b, degrees, e, last)
			last = e.Score
		}
	}
}

// TestMoreOfTheNameIsNeverWorse writes ever more of a name and checks that the score does not fall.
func TestMoreOfTheNameIsNeverWorse(t *testing.T) {
	t.Parallel()
	for _, ladder := range [][]string{
		{"Patina", "Golden Patina", "Golden Lotus", "Golden Lotus Garden"},
		{"Spago", "Spago Mercato", "Trattoria Mercato", "Trattoria del Mercato Vecchio"},
		{"בנדיקט", "טאיזו", "טאיזו בר"},
	} {
		full := match.Place{Name: ladder[len(ladder)-1], City: "Haifa"}
		last := -1.0
		for _, name := range ladder {
			e := match.Compare(match.Place{Name: name, City: "Haifa"}, full)
			check.That(t, !(e.Score < last-1e-9), "%q and %q: %s, less of the name %v", name, full.Name, e, last)
			last = e.Score
		}
		check.That(t, !(last < match.FoundScore), "%q is not itself: %v", full.Name, last)
	}
}

// TestKeysMeet checks that words that are alike share a key under which an index finds them, in all scripts, also when a letter is lost.
func TestKeysMeet(t *testing.T) {
	t.Parallel()
	words := map[string]match.Word{}
	for _, file := range []string{"brands", "fresh", "sounds"} {
		for i, row := range check.Rows(t, "testdata/"+file+".tsv") {
			for _, name := range row {
				runes := []rune(name)
				for _, name := range []string{name, string(slices.Delete(runes, i%len(runes), i%len(runes)+1))} {
					for _, f := range match.Prepare(match.Place{Name: name}).Forms() {
						for _, w := range f.Words {
							words[w.ID()] = w
						}
					}
				}
			}
		}
	}
	list := slices.Collect(maps.Values(words))
	stored := make([][]string, len(list))
	for i := range list {
		stored[i] = list[i].Stored()
	}
	likeness := make([][]float64, len(list)) // of each word to itself and those before it: it is symmetric
	for i := range list {
		for j := range list[:i+1] {
			likeness[i] = append(likeness[i], list[i].Likeness(&list[j]))
		}
	}
	alike, apart := 0, 0
	for i := range list {
		asked := map[int][]string{}
		for j := range list {
			likeness := likeness[max(i, j)][min(i, j)]
			if likeness < 0.8 {
				continue
			}
			alike++
			c := list[j].Class
			if asked[c] == nil {
				asked[c] = list[i].Asked(c)
			}
			if !slices.ContainsFunc(asked[c], func(key string) bool { return slices.Contains(stored[j], key) }) {
				apart++
				t.Logf("%.2f: %q and %q", likeness, asked[c], stored[j])
			}
		}
	}
	check.That(t, alike > len(list) && apart*200 <= alike, "%d of %d pairs of words share no key", apart, alike)
}

// sounded is how the names of one script were told apart.
type sounded struct{ right, missed, wrong, others int }

// mostWrong is how many of the names that are others may be found.
const mostWrong = 0.005

func (s sounded) f1() float64 { return 2 * float64(s.right) / float64(2*s.right+s.missed+s.wrong) }

// TestSoundAlikes looks each name up by its Latin spelling, by those of all others of the list, and by names that
// were chosen because they sound alike, with the position as the only other evidence.
func TestSoundAlikes(t *testing.T) {
	t.Parallel()
	for file, least := range map[string]map[string]float64{
		"sounds.tsv":  {"Arabic": 0.97, "Armenian": 0.97, "Cyrillic": 0.95, "Georgian": 0.93, "Greek": 0.95, "Hebrew": 0.98},
		"unheard.tsv": {"Arabic": 0.92, "Armenian": 0.97, "Cyrillic": 0.96, "Hebrew": 0.95},
		"fresh.tsv":   {"Arabic": 0.87, "Hebrew": 0.92},
		"alike.tsv":   {"Arabic": 0.93, "Hebrew": 0.9},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			soundAlikes(t, file, least)
		})
	}
}

func soundAlikes(t *testing.T, file string, least map[string]float64) {
	t.Helper()
	rows := check.Rows(t, "testdata/"+file)
	var latins []*match.Prepared
	for _, row := range rows {
		latins = append(latins, match.Prepare(match.Place{Name: row[2], Location: at(32, 34)}))
	}
	scripts := map[string]string{
		"ar": "Arabic", "bg": "Cyrillic", "el": "Greek", "he": "Hebrew", "hy": "Armenian", "ka": "Georgian", "ru": "Cyrillic", "uk": "Cyrillic",
	}
	got := map[string]*sounded{}
	for i, row := range rows {
		language, other := strings.CutPrefix(row[0], "-")
		s := got[scripts[language]]
		if s == nil {
			s = &sounded{}
			got[scripts[language]] = s
		}
		p := match.Prepare(match.Place{Name: row[1], Location: at(32, 34)})
		found := func(i int) bool { return p.Best(latins[i:i+1]).Outcome == match.Found }
		if other {
			s.others++
		}
		switch is := found(i); {
		case other && is:
			s.wrong++
			t.Logf("%s is %s", row[1], row[2])
		case other:
			continue
		case is:
			s.right++
		default:
			s.missed++
			t.Logf("%s is not %s", row[1], row[2])
		}
		for j, latin := range rows {
			same := latin[1] == row[1] || strings.HasPrefix(latin[2], row[2]) || strings.HasPrefix(row[2], latin[2])
			if other || same || latin[0][0] == '-' {
				continue
			}
			s.others++
			if found(j) {
				s.wrong++
				t.Logf("%s is %s", row[1], latin[2])
			}
		}
	}
	for script, want := range least {
		t.Logf("%s: F1 is %.3f: %+v", script, got[script].f1(), *got[script])
		f1 := got[script].f1()
		check.That(t, !(f1 < want), "%s: F1 is %.3f, want %.2f", script, f1, want)
		s := got[script]
		check.That(t, !(float64(s.wrong) > max(1, mostWrong*float64(s.others))), "%s: %d of %d others are found", script, s.wrong, s.others)
	}
}
