package measure

import (
	"math"
	"slices"

	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// Duration is a duration in seconds. Both bounds are 0 when the words have no number ("a few minutes", "overnight").
type Duration struct{ Min, Max int }

const longest = 7 * 24 * 3600

// ReadDuration reads "5 minutes", "an hour and a half", "1 h 30 min", "half an hour", "2 or 3 hours", "a few minutes",
// "overnight".
func ReadDuration(ws []words.Word, i int) (d Duration, used int) { return duration(ws, i, true) }

// duration reads a duration, also a range with ranges. The upper bound of a range is read without ranges, which
// bounds the time for a chain of durations.
func duration(ws []words.Word, i int, ranges bool) (d Duration, used int) {
	switch {
	case at(ws, i) == "overnight":
		return Duration{}, 1
	case at(ws, i) == "über" && at(ws, i+1) == "nacht":
		return Duration{}, 2
	}
	n, used := ReadNumber(ws, i)
	if at(ws, i-1) == ":" && i > 1 && ws[i-2].End == ws[i].Start-1 { // "1:30 hours"
		return Duration{}, 0
	}
	if alone := known().times[at(ws, i)].implied; used == 0 && alone > 0 {
		n, used = Number{Min: alone, Max: alone}, 0
	} else if used == 0 {
		return Duration{}, 0
	}
	n, used = withHalf(ws, i, n, used+skip(ws, i+used, "-", "个", "個", "more", "full", "good", "whole", "extra"))
	unit := seconds(ws, i+used)
	if _, longer := unitAt(ws, i+used); unit > 0 && longer > 1 { // "1 ч. л." is a teaspoon
		return Duration{}, 0
	}
	if unit == 0 || isShort(at(ws, i+used)) && (used == 0 || ws[i+used-1].Kind != words.Digits) {
		return minuteAndHalf(ws, i, n, used)
	}
	used++
	if n.Vague {
		return Duration{}, used
	}
	end, part := used, timeUnit(ws, i+used-1).part
	low, high, used := bounds(ws, i, used, n, unit, ranges)
	if high > longest || part && used == end {
		return Duration{}, 0
	}
	return Duration{Min: int(math.Round(low)), Max: int(math.Round(high))}, used
}

// withHalf adds the half of "一个半小时" to the number before it.
func withHalf(ws []words.Word, i int, n Number, used int) (Number, int) {
	if at(ws, i+used) == "半" && ws[i+used-1].Kind == words.Letters {
		return Number{Min: n.Min + 0.5, Max: n.Max + 0.5}, used + 1
	}
	return n, used
}

// bounds reads the words after a number and its unit, and returns the bounds in seconds.
func bounds(ws []words.Word, i, used int, n Number, unit float64, ranges bool) (low, high float64, all int) {
	low, high = n.Min*unit, n.Max*unit
	point := 0
	if at(ws, i+used) == "." && timeUnit(ws, i+used-1).short {
		point = 1
	}
	if least, most, more := rest(ws, i+used+point, unit, point); more > 0 {
		return low + least, high + most, used + point + more
	}
	// "one minute to two minutes", "45 seconds to a minute"
	if ranges && high == low && Reads(ws, i+used+point, "to", "or", "-", "~") {
		if next, more := duration(ws, i+used+point+1, false); more > 0 && float64(next.Max) > high {
			return low, float64(next.Max), used + point + 1 + more
		}
	}
	return low, high, used
}

func isShort(w string) bool { return w == "s" || w == "h" || w == "ч" }

// minuteAndHalf reads "a half hour" and the like, where the article was read as a number.
func minuteAndHalf(ws []words.Word, i int, n Number, used int) (Duration, int) {
	if n.Vague || at(ws, i+used) != "of" {
		return Duration{}, 0
	}
	used += 1 + skip(ws, i+used+1, "a", "an")
	unit := seconds(ws, i+used)
	if unit == 0 || isShort(at(ws, i+used)) {
		return Duration{}, 0
	}
	return Duration{Min: int(n.Min * unit), Max: int(n.Max * unit)}, used + 1
}

// rest reads the words after the larger unit, and the point of its abbreviation: "30 minutes", "and a half", "and 20 minutes".
func rest(ws []words.Word, i int, unit float64, point int) (least, most float64, used int) {
	if part, more := ReadPart(ws, i); more > 0 {
		return part * unit, part * unit, more
	}
	skip := 0
	if and := isAnd(ws, i) || Reads(ws, i, "+", "plus"); and || at(ws, i) == "," {
		if part, more := andPart(ws, i+1, unit); and && more > 0 {
			return part, part, 1 + more
		}
		skip = 1
	}
	n, more := ReadNumber(ws, i+skip)
	if more == 0 || n.Vague {
		return 0, 0, 0
	}
	smaller, end := seconds(ws, i+skip+more), skip+more
	if unit == hour && smaller == 0 && more == 1 && n.Max < 60 && at(ws, i) != "," {
		if minutes := clock(ws, i+skip, point); minutes > 0 {
			return n.Min * 60, n.Max * 60, skip + minutes
		}
	}
	if smaller == 0 || smaller >= unit || isShort(at(ws, i+end)) && ws[i+skip].Kind != words.Digits {
		return 0, 0, 0
	}
	return n.Min * smaller, n.Max * smaller, end + 1
}

// andPart reads "a half" and "half a minute" behind a unit.
func andPart(ws []words.Word, i int, unit float64) (part float64, used int) {
	part, used = aPart(ws, i)
	if smaller := seconds(ws, i+used); used > 0 && smaller > 0 && smaller < unit {
		return part * smaller, used + 1
	}
	return part * unit, used
}

const hour = 3600

// clock returns the number of words from two digits after a number of hours that are minutes: "1 h 30", "1 ч 30 м", and at the end
// of a clause "1 heure 30".
func clock(ws []words.Word, i, point int) int {
	switch {
	case ws[i].Kind != words.Digits || len(ws[i].Text) != 2 && inWords(ws, i) < 10:
		return 0
	case Reads(ws, i+1, "m", "м"):
		return 2
	case isShort(at(ws, i-1-point)) && ws[i].Start-ws[i-1].End <= 1, i+1 == len(ws), Reads(ws, i+1, ".", ",", ";", ":", ")", "|"):
		return 1
	}
	return 0
}

// isAnd reports whether the word at i, between two parts of a duration, is "and" in one of the languages: "1 uur en 30 minuten"
// has no other reading, even where the language is not known.
func isAnd(ws []words.Word, i int) bool {
	if at(ws, i) == "and" {
		return true
	}
	if i >= len(ws) || ws[i].Reading != "" {
		return false
	}
	for _, spoken := range known().vocabulary {
		if p, used := spoken.at(ws[:i+1], i); used == 1 && p.reading == "and" {
			return true
		}
	}
	return false
}

// untilWords bounds a sign that food is done, in words.
const untilWords = 8

// stops end the sign after "until".
var stops = words.Set(`and then so but because cause about for while which or you'll when if now just okay ok add stir pour`)

// ReadUntil reads "until golden brown", "till it gets soft": the words after "until".
func ReadUntil(ws []words.Word, i int) (sign string, used int) {
	switch at(ws, i) {
	case "until", "till", "til":
	default:
		return "", 0
	}
	end := i + 1
	for end < len(ws) && end-i <= untilWords && ws[end].Lower != "until" {
		w := ws[end]
		if w.Kind == words.Mark && w.Lower != "-" {
			break
		}
		if stops[w.Lower] && !(w.Lower == "and" && signs[at(ws, end+1)] && end > i+1) {
			break
		}
		end++
	}
	if end == i+1 {
		return "", 0
	}
	return textOf(ws[i+1 : end]), end - i
}

// signs are words for the look and feel of food that is done.
var signs = words.Set(`brown browned golden crisp crispy tender soft softened fragrant translucent thick thickened smooth fluffy bubbly
bubbling firm opaque melted creamy done hot warm pale light dry sticky glossy cooked evaporated`)

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
	return unit == 0 && seconds(ws, i+used) == 0
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
	return slices.Contains([]string{"to", "at", "of", "on", "is", "about", "oven"}, at(ws, i-1)) && anyBefore(ws, i, 7, ovens)
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
	begin := skip(ws, i, "very", "fairly", "really")
	name, ok := levels[at(ws, i+begin)]
	if !ok {
		return Temperature{}, 0
	}
	used := begin + 1
	between := skip(ws, i+used, "-", "to", ",")
	if other, ok := levels[at(ws, i+used+between)]; ok {
		if other != name {
			name += "-" + other
		}
		used += between + 1
	}
	if Reads(ws, i+used, "heat", "flame", "temperature", "setting", "fire", "temp") {
		return Temperature{Level: name}, used + 1
	}
	if Reads(ws, i-1, "on", "to", "over", "at", "onto") && anyBefore(ws, i, 6, heats) {
		return Temperature{Level: name}, used
	}
	return Temperature{}, 0
}

func boil(ws []words.Word, i int) (Temperature, int) {
	manner := skip(ws, i, "rolling", "rapid", "hard", "gentle", "slow", "low", "light", "nice", "bare")
	w := at(ws, i+manner)
	if w != "boil" && w != "simmer" {
		return Temperature{}, 0
	}
	switch at(ws, i-1) {
	case "a", "to", "the":
		if at(ws, i-1) == "to" && at(ws, i-2) != "up" && at(ws, i-2) != "down" && manner == 0 && !anyBefore(ws, i-1, 5, bring) {
			return Temperature{}, 0 // "you want to boil"
		}
		return Temperature{Level: w}, manner + 1
	}
	return Temperature{}, 0
}
