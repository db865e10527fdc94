package measure

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestReadAmount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, qty, unit, note, rest string }{
		{"2 cups flour", "2", "cup", "", "flour"},
		{"2 cups of flour", "2", "cup", "", "flour"},
		{"200g flour", "200", "gram", "", "flour"},
		{"200 g of flour", "200", "gram", "", "flour"},
		{"1 kg potatoes", "1", "kilogram", "", "potatoes"},
		{"250ml milk", "250", "milliliter", "", "milk"},
		{"1.5 L water", "1 1/2", "liter", "", "water"},
		{"2 dl cream", "2", "deciliter", "", "cream"},
		{"1 tsp. salt", "1", "teaspoon", "", "salt"},
		{"1 t salt", "1", "", "", "t salt"},
		{"1 T butter", "1", "tablespoon", "", "butter"},
		{"1 Tbsp butter", "1", "tablespoon", "", "butter"},
		{"3 tbsps. oil", "3", "tablespoon", "", "oil"},
		{"8 oz. cheese", "8", "ounce", "", "cheese"},
		{"4 fl oz milk", "4", "fluid ounce", "", "milk"},
		{"4 fluid ounces of milk", "4", "fluid ounce", "", "milk"},
		{"1 lb beef", "1", "pound", "", "beef"},
		{"two pounds of beef", "2", "pound", "", "beef"},
		{"half a pound of beef", "1/2", "pound", "", "beef"},
		{"a pinch of salt", "1", "pinch", "", "salt"},
		{"a good pinch of salt", "1", "pinch", "", "salt"},
		{"2 heaping tablespoons cocoa", "2", "tablespoon", "", "cocoa"},
		{"a generous half teaspoon of thyme", "1/2", "teaspoon", "", "thyme"},
		{"a small bunch of parsley", "1", "bunch", "", "parsley"},
		{"2-3 cloves garlic", "2-3", "clove", "", "garlic"},
		{"two or three cloves of garlic", "2-3", "clove", "", "garlic"},
		{"1 stick of butter", "1", "stick", "", "butter"},
		{"1 (14 oz) can tomatoes", "1", "can", "14 oz", "tomatoes"},
		{"1 14-ounce can tomatoes", "1", "can", "14-ounce", "tomatoes"},
		{"two four hundred gram cans of tomatoes", "2", "can", "four hundred gram", "tomatoes"},
		{"an eight ounce can of tomatoes", "1", "can", "eight ounce", "tomatoes"},
		{"1 cup (240 ml) milk", "1", "cup", "240 ml", "milk"},
		{"1 cup / 240 ml milk", "1", "cup", "240 ml", "milk"},
		{"1 cup plus 2 tablespoons sugar", "1", "cup", "plus 2 tablespoons", "sugar"},
		{"3 eggs", "3", "", "", "eggs"},
		{"three large eggs", "3", "", "", "large eggs"},
		{"half an onion", "1/2", "", "", "onion"},
		{"2 inches of ginger", "2", "inch", "", "ginger"},
		{"a handful of basil", "1", "handful", "", "basil"},
		{"a few sprigs of thyme", "", "sprig", "", "thyme"},
		{"2 EL Zucker", "2", "tablespoon", "", "Zucker"},
		{"1 Prise Salz", "1", "pinch", "", "Salz"},
		{"2 cucharadas de aceite", "2", "tablespoon", "", "aceite"},
		{"3 c. à s. de sucre", "3", "tablespoon", "", "sucre"},
		{"1 cuillère à café de sel", "1", "teaspoon", "", "sel"},
		{"2 ст. л. сахара", "2", "tablespoon", "", "сахара"},
		{"200 г муки", "200", "gram", "", "муки"},
		{"2 כפות סוכר", "2", "tablespoon", "", "סוכר"},
		{`200 מ"ל חלב`, "200", "milliliter", "", "חלב"},
	} {
		ws := split(c.text)
		a, used := ReadAmount(ws, 0)
		if a.Number.Text() != c.qty || a.Unit.Name != c.unit || a.Note != c.note || rested(ws, used) != c.rest {
			t.Errorf("%q is %q %q (%s) before %q, want %q %q (%s) before %q",
				c.text, a.Number.Text(), a.Unit.Name, a.Note, rested(ws, used), c.qty, c.unit, c.note, c.rest)
		}
	}
}

func TestUnitsAreRead(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, list := range units {
		for _, e := range list {
			names[e.unit.Name] = true
			check.That(t, len(e.words) != 0 && e.unit.Name != "", "%+v is incomplete", e)
		}
	}
	check.That(t, len(names) >= 50, "%d units", len(names))
	for name := range names {
		ws := split(name)
		u, used := ReadUnit(ws, 0)
		check.That(t, u.Name == name && used == len(ws), "%q is read as %q", name, u.Name)
	}
}
