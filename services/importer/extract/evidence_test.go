package extract

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestIngredient(t *testing.T) {
	t.Parallel()
	s := newEvidence("en")
	for _, text := range []string{
		"We need two and a half cups of flour.", "Then I chop an onion and three garlic cloves very finely with my favourite knife from home.",
		"Preheat the oven to 350 degrees.", "Add a pinch of salt, 200g butter and one third of a cup of milk.",
	} {
		s.add(text, false)
	}
	for _, c := range []struct {
		item, qty, unit string
		want            []string
	}{
		{"flour", "2.5", "cup", nil},
		{"flour", "2 1/2", "cups", nil},
		{"all-purpose flour", "", "", nil},
		{"flour, sifted", "", "", nil},
		{"flour", "3", "cup", []string{"qty"}},
		{"flour", "350", "", []string{"qty"}}, // said, but of the oven
		{"flour", "2.5", "gram", []string{"unit"}},
		{"onions", "1", "", []string{"qty"}}, // "an" is no number before a countable noun
		{"onion", "", "", nil},
		{"cloves of garlic", "3", "", nil},
		{"garlic", "3", "clove", nil},
		{"garlic", "2-3", "clove", []string{"qty"}},
		{"salt", "1", "pinch", nil},
		{"butter", "200", "g", nil},
		{"milk", "1/3", "cup", nil},
		{"milk", "0.33", "cup", nil},
		{"saffron", "", "", []string{"item"}},
		{"saffron", "9", "ounce", []string{"item", "qty", "unit"}},
		{"", "", "", []string{"item"}},
		{"12", "", "", []string{"item"}},
	} {
		diff := cmp.Diff(c.want, s.ingredient(c.item, c.qty, c.unit))
		check.That(t, diff == "", "%s %s %s: %s", c.qty, c.unit, c.item, diff)
	}
}

func TestAmountsOfOtherLinesDoNotCount(t *testing.T) {
	t.Parallel()
	s := newEvidence("en")
	s.add("3 eggs", true)
	s.add("1 cup milk", true)
	check.Equal(t, s.ingredient("milk", "3", ""), []string{"qty"})
	check.Equal(t, s.ingredient("eggs", "3", ""), []string(nil))
}
