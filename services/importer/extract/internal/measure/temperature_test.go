package measure

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
