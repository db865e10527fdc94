package measure

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

func TestReadNumber(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text     string
		min, max float64
		rest     string
	}{
		{"2 eggs", 2, 2, "eggs"},
		{"2.5 cups", 2.5, 2.5, "cups"},
		{"2,5 dl", 2.5, 2.5, "dl"},
		{"1,000 g", 1000, 1000, "g"},
		{"0,125 l", 0.125, 0.125, "l"},
		{"1/2 cup", 0.5, 0.5, "cup"},
		{"1⁄2 cup", 0.5, 0.5, "cup"},
		{"½ cup", 0.5, 0.5, "cup"},
		{"1½ cups", 1.5, 1.5, "cups"},
		{"1 ½ cups", 1.5, 1.5, "cups"},
		{"1 1/2 cups", 1.5, 1.5, "cups"},
		{"1-1/2 cups", 1.5, 1.5, "cups"},
		{"1 and 1/2 cups", 1.5, 1.5, "cups"},
		{"2 and a half cups", 2.5, 2.5, "cups"},
		{"¾ teaspoon", 0.75, 0.75, "teaspoon"},
		{"2-3 eggs", 2, 3, "eggs"},
		{"2–3 eggs", 2, 3, "eggs"},
		{"2 - 3 eggs", 2, 3, "eggs"},
		{"2 to 3 eggs", 2, 3, "eggs"},
		{"2 or 3 eggs", 2, 3, "eggs"},
		{"3 to 2 eggs", 3, 3, "to 2 eggs"},
		{"3 or 3 eggs", 3, 3, "or 3 eggs"},
		{"1-1½ cups", 1, 1.5, "cups"},
		{"1/4 to 1/2 cup", 0.25, 0.5, "cup"},
		{"two eggs", 2, 2, "eggs"},
		{"twelve eggs", 12, 12, "eggs"},
		{"twenty five grams", 25, 25, "grams"},
		{"twenty-five grams", 25, 25, "grams"},
		{"a hundred grams", 100, 100, "grams"},
		{"one hundred grams", 100, 100, "grams"},
		{"one hundred and fifty grams", 150, 150, "grams"},
		{"two hundred fifty grams", 250, 250, "grams"},
		{"three fifty degrees", 350, 350, "degrees"},
		{"four twenty five degrees", 425, 425, "degrees"},
		{"one thousand grams", 1000, 1000, "grams"},
		{"a dozen eggs", 12, 12, "eggs"},
		{"half a dozen eggs", 0.5, 0.5, "dozen eggs"},
		{"two dozen eggs", 24, 24, "eggs"},
		{"half a cup", 0.5, 0.5, "cup"},
		{"half cup", 0.5, 0.5, "cup"},
		{"a half cup", 0.5, 0.5, "cup"},
		{"one half cup", 0.5, 0.5, "cup"},
		{"half of a lemon", 0.5, 0.5, "lemon"},
		{"a quarter cup", 0.25, 0.25, "cup"},
		{"a quarter of a cup", 0.25, 0.25, "cup"},
		{"one third cup", 1. / 3, 1. / 3, "cup"},
		{"two thirds cup", 2. / 3, 2. / 3, "cup"},
		{"three quarters of a cup", 0.75, 0.75, "of a cup"},
		{"three fourths cup", 0.75, 0.75, "cup"},
		{"one and a half cups", 1.5, 1.5, "cups"},
		{"one and a quarter cups", 1.25, 1.25, "cups"},
		{"two and three quarters cups", 2.75, 2.75, "cups"},
		{"two or three cloves", 2, 3, "cloves"},
		{"two to three cloves", 2, 3, "cloves"},
		{"three four minutes", 3, 4, "minutes"},
		{"between two and three cups", 2, 3, "cups"},
		{"a couple of eggs", 2, 2, "eggs"},
		{"a couple tablespoons", 2, 2, "tablespoons"},
		{"couple of eggs", 2, 2, "eggs"},
		{"a cup", 1, 1, "cup"},
		{"an onion", 1, 1, "onion"},
		{"another cup", 1, 1, "cup"},
		{"a few sprigs", 0, 0, "sprigs"},
		{"several eggs", 0, 0, "eggs"},
	} {
		ws := split(c.text)
		n, used := ReadNumber(ws, 0)
		if diff := n.Min - c.min; diff > 1e-9 || diff < -1e-9 || n.Max-c.max > 1e-9 || c.max-n.Max > 1e-9 || rested(ws, used) != c.rest {
			t.Errorf("%q is %v to %v before %q, want %v to %v before %q", c.text, n.Min, n.Max, rested(ws, used), c.min, c.max, c.rest)
		}
	}
}

func TestReadNumberFindsNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "salt", "and a", "-", "of", "some salt", "the 3", "1/0 cup", "more", "little", "cup 2"} {
		n, used := ReadNumber(split(text), 0)
		check.That(t, used <= 0, "%q is %+v", text, n)
	}
}

func TestNumberText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    Number
		want string
	}{
		{Number{Min: 2, Max: 2}, "2"},
		{Number{Min: 0.5, Max: 0.5}, "1/2"},
		{Number{Min: 1.5, Max: 1.5}, "1 1/2"},
		{Number{Min: 1. / 3, Max: 1. / 3}, "1/3"},
		{Number{Min: 0.33, Max: 0.33}, "1/3"},
		{Number{Min: 2.75, Max: 2.75}, "2 3/4"},
		{Number{Min: 0.1, Max: 0.1}, "0.1"},
		{Number{Min: 2, Max: 3}, "2-3"},
		{Number{Min: 0.25, Max: 0.5}, "1/4-1/2"},
		{Number{Min: 1000, Max: 1000}, "1000"},
		{Number{Vague: true}, ""},
	} {
		got := c.n.Text()
		check.That(t, got == c.want, "%+v is %q, want %q", c.n, got, c.want)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func split(text string) []words.Word { return words.Split(words.Plain(text)) }

// rested returns the words that a reader left.
func rested(ws []words.Word, used int) string { return textOf(ws[used:]) }

func TestReadDuration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text     string
		min, max int
		rest     string
	}{
		{"5 minutes", 300, 300, ""},
		{"5 min.", 300, 300, "."},
		{"30 seconds", 30, 30, ""},
		{"30-45 seconds", 30, 45, ""},
		{"thirty to forty five seconds", 30, 45, ""},
		{"five minutes on each side", 300, 300, "on each side"},
		{"a minute", 60, 60, ""},
		{"an hour", 3600, 3600, ""},
		{"half an hour", 1800, 1800, ""},
		{"a half hour", 1800, 1800, ""},
		{"a half an hour", 1800, 1800, ""},
		{"an hour and a half", 5400, 5400, ""},
		{"one and a half hours", 5400, 5400, ""},
		{"two and a half minutes", 150, 150, ""},
		{"two minutes and a half", 150, 150, ""},
		{"1 hour 30 minutes", 5400, 5400, ""},
		{"1 hour and 20 minutes", 4800, 4800, ""},
		{"1 h 30 min", 5400, 5400, ""},
		{"1h30min", 5400, 5400, ""},
		{"2 hrs", 7200, 7200, ""},
		{"a quarter of an hour", 900, 900, ""},
		{"three quarters of an hour", 2700, 2700, ""},
		{"an hour and a quarter", 4500, 4500, ""},
		{"2 or 3 hours", 7200, 10800, ""},
		{"between 2 and 3 hours", 7200, 10800, ""},
		{"three four minutes", 180, 240, ""},
		{"one minute to two minutes", 60, 120, ""},
		{"45 seconds to 1 minute", 45, 60, ""},
		{"a couple of minutes", 120, 120, ""},
		{"a couple minutes", 120, 120, ""},
		{"a few minutes", 0, 0, ""},
		{"several hours", 0, 0, ""},
		{"overnight please", 0, 0, "please"},
		{"two days", 172800, 172800, ""},
		{"10 more minutes", 600, 600, ""},
		{"a full minute", 60, 60, ""},
		{"20-minute rest", 1200, 1200, "rest"},
		{"10 Minuten", 600, 600, ""},
		{"über Nacht", 0, 0, ""},
		{"20 minutos", 1200, 1200, ""},
		{"5 минут", 300, 300, ""},
		{"10 דקות", 600, 600, ""},
		{"1 minute to 2 minutes to 3 minutes", 60, 120, "to 3 minutes"}, // a chain is not read to its end
	} {
		ws := split(c.text)
		d, used := ReadDuration(ws, 0)
		if used == 0 || d.Min != c.min || d.Max != c.max || rested(ws, used) != c.rest {
			t.Errorf("%q is %d to %d s before %q, want %d to %d before %q", c.text, d.Min, d.Max, rested(ws, used), c.min, c.max, c.rest)
		}
	}
}

func TestReadDurationFindsNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "5", "5 cups", "minutes", "a second", "one s", "the hour", "500000 hours"} {
		d, used := ReadDuration(split(text), 0)
		check.That(t, used <= 0 || text == "a second", "%q is %+v", text, d)
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
	for _, text := range []string{"250克奶油奶酪", "醤油大さじ2と1/2", "两百三十克 1 minute to 2 minutes", "แป้ง200กรัม", "２大さじ"} {
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
		if strings.TrimSpace(text[end:]) != "" {
			t.Fatalf("%q: %q is lost", text, text[end:])
		}
	})
}

func TestReadTemperature(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text     string
		min, max float64
		scale    string
		level    string
	}{
		{"350 degrees", 350, 350, "", ""},
		{"bake it at 350 degrees Fahrenheit", 350, 350, "F", ""},
		{"350°F", 350, 350, "F", ""},
		{"350 °F", 350, 350, "F", ""},
		{"350ºF", 350, 350, "F", ""},
		{"350 F", 350, 350, "F", ""},
		{"180 °C", 180, 180, "C", ""},
		{"180C", 180, 180, "C", ""},
		{"180℃", 180, 180, "C", ""},
		{"180 degrees celsius", 180, 180, "C", ""},
		{"three hundred seventy five degrees", 375, 375, "", ""},
		{"three hundred and seventy five degrees", 375, 375, "", ""},
		{"three fifty degrees", 350, 350, "", ""},
		{"400-450 degrees", 400, 450, "", ""},
		{"400 to 450 degrees", 400, 450, "", ""},
		{"350°F to 375°F", 350, 375, "F", ""},
		{"gas mark 4", 4, 4, "gas", ""},
		{"preheat the oven to 350", 350, 350, "", ""},
		{"the oven at four twenty five", 425, 425, "", ""},
		{"in the oven for fifteen minutes at three fifty", 350, 350, "", ""},
		{"medium heat", 0, 0, "", "medium"},
		{"over medium-high heat", 0, 0, "", "medium-high"},
		{"medium to high heat", 0, 0, "", "medium-high"},
		{"medium low heat", 0, 0, "", "medium-low"},
		{"very high heat", 0, 0, "", "high"},
		{"a low flame", 0, 0, "", "low"},
		{"turn the heat to low", 0, 0, "", "low"},
		{"cook the onion on medium", 0, 0, "", "medium"},
		{"crank it back up on high", 0, 0, "", "high"},
		{"bring it to a boil", 0, 0, "", "boil"},
		{"bring it to a rolling boil", 0, 0, "", "boil"},
		{"bring this up to a simmer", 0, 0, "", "simmer"},
		{"180 Grad", 180, 180, "", ""},
		{"180 градусов", 180, 180, "", ""},
		{"180 מעלות", 180, 180, "", ""},
	} {
		ws := split(c.text)
		var got Temperature
		for i := range ws {
			if temperature, used := ReadTemperature(ws, i); used > 0 {
				got = temperature
				break
			}
		}
		want := (Temperature{Min: c.min, Max: c.max, Scale: c.scale, Level: c.level})
		check.That(t, got == want, "%q is %+v, want %+v", c.text, got, want)
	}
}

func TestReadTemperatureFindsNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "350 grams", "medium onion", "a high pan", "we want to boil it", "5 minutes", "at 350 grams", "2 c flour", "350 calories",
		"put 200 in", "the oven for 120 minutes", "on high street",
	} {
		ws := split(text)
		for i := range ws {
			temperature, used := ReadTemperature(ws, i)
			check.That(t, used <= 0, "%q is %+v", text, temperature)
		}
	}
}
