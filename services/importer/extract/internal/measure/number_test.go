package measure

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
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
