package measure

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

func TestReadNumber(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/numbers.tsv") {
		ws := split(row[0])
		n, used := ReadNumber(ws, 0)
		least, most := check.Must(strconv.ParseFloat(row[1], 64))(t), check.Must(strconv.ParseFloat(row[2], 64))(t)
		check.That(t, math.Abs(n.Min-least) < 1e-9 && math.Abs(n.Max-most) < 1e-9 && rested(ws, used) == row[3],
			"%q is %v to %v before %q, want %s to %s before %q", row[0], n.Min, n.Max, rested(ws, used), row[1], row[2], row[3])
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func split(text string) []words.Word { return words.Split(words.Plain(text)) }

// rested returns the words that a reader left.
func rested(ws []words.Word, used int) string { return textOf(ws[used:]) }

func TestReadDuration(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/durations.tsv") {
		ws := split(row[0])
		d, used := ReadDuration(ws, 0)
		got := []string{row[0], strconv.Itoa(d.Min), strconv.Itoa(d.Max), rested(ws, used)}
		check.That(t, used > 0 && slices.Equal(got, row), "got %q, want %q", got, row)
	}
}

func TestReadDurationInWords(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/durations-words.tsv") {
		ws := SplitIn(row[0], words.Plain(row[1]))
		d, used := ReadDuration(ws, 0)
		got := []string{row[0], row[1], strconv.Itoa(d.Min), strconv.Itoa(d.Max), rested(ws, used)}
		check.That(t, slices.Equal(got, row), "got %q, want %q", got, row)
	}
}

func TestReadUntil(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"until golden brown", "golden brown"},
		{"until golden and crispy", "golden and crispy"},
		{"until it is soft, about 5 minutes", "it is soft"},
		{"until soft about 5 minutes", "soft"},
		{"till the water evaporates and then add salt", "the water evaporates"},
		{"until", ""},
		{"until.", ""},
		{"golden brown", ""},
	} {
		got, _ := ReadUntil(split(c.text), 0)
		check.That(t, got == c.want, "%q is %q, want %q", c.text, got, c.want)
	}
}

// FuzzSplit holds that the parts of a text are all of it, each at its place, and that no reader goes beyond them.
func FuzzSplit(f *testing.F) {
	for _, text := range []string{"250克奶油奶酪", "醤油大さじ2と1/2", "两百三十克 1 minute to 2 minutes", "แป้ง200กรัม", "２大さじ", "1 ½-inch .5 3 / 4 d'un полстакана"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = words.Plain(text)
		ws, end := Split(text), 0
		for i, w := range ws {
			check.Require(t, w.Text != "" && w.Start >= end && text[w.Start:w.End] == w.Text && strings.TrimSpace(text[end:w.Start]) == "",
				"%q: word %d is %+v after %d", text, i, w, end)
			end = w.End
			_, amount := ReadAmount(ws, i)
			_, duration := ReadDuration(ws, i)
			_, temperature := ReadTemperature(ws, i)
			check.Require(t, i+max(amount, duration, temperature) <= len(ws), "%q: read beyond the end from word %d", text, i)
		}
		check.Require(t, strings.TrimSpace(text[end:]) == "", "%q: %q is lost", text, text[end:])
		for _, language := range []string{"", "de", "en", "ru"} {
			ws := SplitIn(language, text)
			for i, w := range ws {
				_, amount := ReadUncounted(ws, i)
				_, each := ReadEach(ws, i)
				check.Require(t, 0 <= w.Start && w.Start < w.End && w.End <= len(text) && i+max(amount, each) <= len(ws),
					"%q in %q: word %d is %+v", text, language, i, w)
			}
		}
	})
}

func TestReadTemperature(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/temperatures.tsv") {
		ws := split(row[0])
		var read Temperature
		for i := range ws {
			if temperature, used := ReadTemperature(ws, i); used > 0 {
				read = temperature
				break
			}
		}
		got := []string{row[0], fmt.Sprint(read.Min), fmt.Sprint(read.Max), read.Scale, read.Level}
		check.That(t, slices.Equal(got, row), "got %q, want %q", got, row)
	}
}

func TestReadAmount(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/amounts.tsv") {
		ws := split(row[0])
		a, used := ReadAmount(ws, 0)
		got := []string{row[0], a.Number.Text(), a.Unit.Name, a.Note, rested(ws, used)}
		check.That(t, slices.Equal(got, row), "got %q, want %q", got, row)
	}
}

func TestUnitsAreRead(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, list := range known().units {
		for _, e := range list {
			if e.unit.Class != Unclear {
				names[e.unit.Name] = true
			}
			check.That(t, len(e.words) != 0 && (e.unit.Name != "" || e.unit.Class == Unclear), "%+v is incomplete", e)
		}
	}
	check.That(t, len(names) >= 50, "%d units", len(names))
	for name := range names {
		ws := split(name)
		u, used := ReadUnit(ws, 0)
		check.That(t, u.Name == name && used == len(ws), "%q is read as %q", name, u.Name)
	}
}

func TestReadersFindNone(t *testing.T) {
	t.Parallel()
	used := map[string]func(text string) int{
		"number":   func(text string) int { _, used := ReadNumber(split(text), 0); return used },
		"duration": func(text string) int { _, used := ReadDuration(split(text), 0); return used },
		"temperature": func(text string) (most int) {
			ws := split(text)
			for i := range ws {
				_, used := ReadTemperature(ws, i)
				most = max(most, used)
			}
			return most
		},
	}
	for kind, texts := range map[string][]string{
		"number": {"", "salt", "and a", "-", "of", "some salt", "the 3", "1/0 cup", "more", "little", "cup 2"},
		"duration": {
			"", "5", "5 cups", "minutes", "one s", "the hour", "500000 hours", "one more time", "1 ч. л. соли", "2 u of flour", "1:30 hours",
		},
		"temperature": {
			"", "350 grams", "medium onion", "a high pan", "we want to boil it", "5 minutes", "at 350 grams", "2 c flour", "350 calories",
			"put 200 in", "the oven for 120 minutes", "on high street",
		},
	} {
		for _, text := range texts {
			check.Equal(t, used[kind](text), 0, kind, text)
		}
	}
}
