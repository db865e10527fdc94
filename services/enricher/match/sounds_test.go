package match_test

import (
	"os"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
)

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
	raw, err := os.ReadFile("testdata/" + file)
	check.OK(t, err)
	var rows [][]string
	var latins []*match.Prepared
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Split(strings.TrimSpace(line), "\t"); len(fields) == 3 {
			rows = append(rows, fields)
			latins = append(latins, match.Prepare(match.Place{Name: fields[2], Location: at(32, 34)}))
		}
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
