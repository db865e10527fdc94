package page

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// units has the beginnings of the names of time units in many languages, by the unit's seconds, 0 for units without a fixed
// length.
var units = map[float64]string{
	7 * 24 * 3600: "W", 24 * 3600: "D TAG JOUR GIORN", 3600: "H ST U O GOD Ч ГОД שע", 60: "M М ХВ דק", 1: "S С", 0: "MO Y",
}

// maxDuration bounds the text of a duration, in bytes.
const maxDuration = 200

var clock = regexp.MustCompile(`^(\d{1,3}):([0-5]\d)(?::([0-5]\d))?$`)

// seconds reads a duration of ISO 8601, such as PT1H30M, in the forms that pages have: any case, spaces, words for units,
// fractions, days after the T. It also reads 1:30, and texts such as 20 minutes. It reports false for any other text, and for
// a duration longer than a recipe may have.
func seconds(text string) (int, bool) {
	if len(text) > maxDuration {
		return 0, false
	}
	text = strings.TrimSpace(strings.ToUpper(text))
	if m := clock.FindStringSubmatch(text); m != nil {
		text = "PT" + m[1] + "H" + m[2] + "M0" + m[3] + "S"
	}
	iso, isISO := strings.CutPrefix(text, "P")
	if total, ok := sum(iso, isISO); ok {
		return int(total + 0.5), true
	}
	if isISO {
		return 0, false
	}
	times := rules.Step(strings.ToLower(text)).Times
	if len(times) != 1 || times[0].MaxSec == 0 || times[0].MaxSec > recipe.MaxSeconds || countNumbers(times[0].Raw) != countNumbers(text) {
		return 0, false
	}
	return times[0].MaxSec, true
}

func countNumbers(text string) int {
	return len(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsDigit(r) }))
}

// sum returns the sum of numbers with units. In ISO 8601 an M before the T is a month.
func sum(text string, isISO bool) (total float64, ok bool) {
	months := isISO
	for {
		text = strings.TrimLeft(text, " .")
		if isISO && strings.HasPrefix(text, "T") {
			text, months = text[1:], false
			continue
		}
		if text == "" {
			return total, total <= recipe.MaxSeconds
		}
		end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != ',' })
		if end <= 0 || end > 12 {
			return 0, false
		}
		value, err := strconv.ParseFloat(strings.ReplaceAll(text[:end], ",", "."), 64)
		name := strings.TrimLeft(text[end:], " ")
		text = strings.TrimLeftFunc(name, unicode.IsLetter)
		name = name[:len(name)-len(text)]
		if short, ok := strings.CutSuffix(name, "T"); ok && isISO && short != "" { // 0DT1H
			name, text = short, "T"+text
		}
		size, known := unit(name)
		if months && name == "M" {
			size = 0
		}
		if err != nil || !known || size == 0 && value != 0 {
			return 0, false
		}
		total += value * size
	}
}

// unit returns the seconds of the unit with the longest matching beginning.
func unit(name string) (seconds float64, known bool) {
	longest := ""
	for size, begins := range units {
		for begin := range strings.FieldsSeq(begins) {
			if strings.HasPrefix(name, begin) && len(begin) > len(longest) {
				longest, seconds = begin, size
			}
		}
	}
	return seconds, longest != ""
}
