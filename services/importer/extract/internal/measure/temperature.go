package measure

import (
	"math"
	"slices"

	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// Temperature is degrees on a scale, or a level of heat.
type Temperature struct {
	Min, Max float64
	// Scale is "F", "C", "gas", or "" when the words name none.
	Scale string
	// Level is "low", "medium", "medium-high", "high", "simmer", "boil".
	Level string
}

var scales = map[string]string{
	"f": "F", "fahrenheit": "F",
	"c": "C", "celsius": "C", "centigrade": "C",
}

// ReadTemperature reads "350 degrees", "180 °C", "350 F", "gas mark 4", "medium-high heat", "a rolling boil" and, after words
// that speak of an oven or of heat, "350" and "high" alone.
func ReadTemperature(ws []words.Word, i int) (t Temperature, used int) {
	if at(ws, i) == "gas" && at(ws, i+1) == "mark" {
		if n, more := ReadNumber(ws, i+2); more > 0 && n.Max <= 10 {
			return Temperature{Min: n.Min, Max: n.Max, Scale: "gas"}, 2 + more
		}
	}
	if t, used := degrees(ws, i); used > 0 {
		return t, used
	}
	return level(ws, i)
}

func degrees(ws []words.Word, i int) (Temperature, int) {
	if i < len(ws) && isArticle(at(ws, i)) && at(ws, i+1) != "hundred" {
		return Temperature{}, 0
	}
	n, used := ReadNumber(ws, i)
	if used == 0 || n.Vague {
		return Temperature{}, 0
	}
	scale, more := degreeSign(ws, i+used)
	if more == 0 && !isOven(ws, i, used, n) {
		return Temperature{}, 0
	}
	used += more
	if w := at(ws, i+used); (w == "to" || w == "-" || w == "or") && n.Min == n.Max && more > 0 {
		if high, m := single(ws, i+used+1); m > 0 && high > n.Max {
			if s, k := degreeSign(ws, i+used+1+m); k > 0 && (scale == "" || s == scale) {
				n.Max, scale, used = high, s, used+1+m+k
			}
		}
	}
	if n.Max > 1200 {
		return Temperature{}, 0
	}
	return Temperature{Min: n.Min, Max: n.Max, Scale: scale}, used
}

// isOven reports whether a number without a unit can only be an oven temperature.
func isOven(ws []words.Word, i, used int, n Number) bool {
	if !ovenBefore(ws, i) || n.Min < 90 || n.Max > 600 || n.Min != math.Trunc(n.Min) {
		return false
	}
	_, unit := ReadUnit(ws, i+used)
	_, time := timeUnits[at(ws, i+used)]
	return unit == 0 && !time
}

func degreeSign(ws []words.Word, i int) (scale string, used int) {
	switch at(ws, i) {
	case "°", "º", "degrees", "degree", "grad", "grados", "degrés", "gradi", "graus", "градусов", "מעלות", "度", "도", "องศา":
		if s, ok := scales[at(ws, i+1)]; ok {
			return s, 2
		}
		return "", 1
	case "℃":
		return "C", 1
	case "℉":
		return "F", 1
	}
	if s, ok := scales[at(ws, i)]; ok && (len(at(ws, i)) > 1 || ws[i].Text == "F" || ws[i].Text == "C" && ws[i-1].Kind == words.Digits) {
		return s, 1
	}
	return "", 0
}

// ovenBefore reports whether the "at 350" at i is about an oven: one of the four words before names an oven, or is the verb
// preheat.
func ovenBefore(ws []words.Word, i int) bool {
	if w := at(ws, i-1); w != "to" && w != "at" && w != "of" && w != "on" && w != "is" && w != "about" && w != "oven" {
		return false
	}
	return anyBefore(ws, i, 7, ovens)
}

// anyBefore reports whether one of the n words before i is in a set.
func anyBefore(ws []words.Word, i, n int, set map[string]bool) bool {
	return slices.ContainsFunc(ws[max(0, i-n):i], func(w words.Word) bool { return set[w.Lower] })
}

var (
	ovens = words.Set("oven preheat preheated bake baked baking roast grill fryer smoker temperature")
	heats = words.Set("heat stove burner fire flame crank cook turn simmer fry set pan stovetop cooker reduce lower")
	bring = words.Set("bring brought bringing comes come came reduce heat")
)

var levels = map[string]string{"low": "low", "medium": "medium", "med": "medium", "high": "high", "moderate": "medium", "gentle": "low"}

// level reads a level of heat: before "heat", "flame" or "temperature", after "heat on" or "turn it to", or a boil or
// simmer to which food is brought.
func level(ws []words.Word, i int) (Temperature, int) {
	if t, used := boil(ws, i); used > 0 {
		return t, used
	}
	begin := 0
	if w := at(ws, i); w == "very" || w == "fairly" || w == "really" {
		begin = 1
	}
	name, ok := levels[at(ws, i+begin)]
	if !ok {
		return Temperature{}, 0
	}
	used := begin + 1
	skip := used
	for at(ws, i+skip) == "-" || at(ws, i+skip) == "to" || at(ws, i+skip) == "," {
		skip++
	}
	if other, ok := levels[at(ws, i+skip)]; ok && skip-used <= 1 {
		if other != name {
			name += "-" + other
		}
		used = skip + 1
	}
	switch at(ws, i+used) {
	case "heat", "flame", "temperature", "setting", "fire", "temp":
		return Temperature{Level: name}, used + 1
	}
	if heatBefore(ws, i) {
		return Temperature{Level: name}, used
	}
	return Temperature{}, 0
}

func heatBefore(ws []words.Word, i int) bool {
	switch at(ws, i-1) {
	case "on", "to", "over", "at", "onto":
		return anyBefore(ws, i, 6, heats)
	default:
		return false
	}
}

func boil(ws []words.Word, i int) (Temperature, int) {
	skip := 0
	switch at(ws, i) {
	case "rolling", "rapid", "hard", "gentle", "slow", "low", "light", "nice", "bare":
		skip = 1
	}
	w := at(ws, i+skip)
	if w != "boil" && w != "simmer" {
		return Temperature{}, 0
	}
	switch at(ws, i-1) {
	case "a", "to", "the":
		if at(ws, i-1) == "to" && at(ws, i-2) != "up" && at(ws, i-2) != "down" && skip == 0 && !anyBefore(ws, i-1, 5, bring) {
			return Temperature{}, 0 // "you want to boil"
		}
		return Temperature{Level: w}, skip + 1
	}
	return Temperature{}, 0
}
