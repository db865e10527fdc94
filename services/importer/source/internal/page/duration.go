package page

import (
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/services/importer/recipe"
)

// seconds reads a duration of ISO 8601, such as PT1H30M, in the forms that pages have: any case, fractions, and days or weeks
// before the T. It is 0 when the text is none, or longer than a recipe may take.
func seconds(text string) int {
	text = strings.ToUpper(strings.TrimSpace(text))
	text, ok := strings.CutPrefix(text, "P")
	if !ok {
		return 0
	}
	date, clock, _ := strings.Cut(text, "T")
	days, ok := sum(date, map[byte]float64{'W': 7 * 24 * 3600, 'D': 24 * 3600, 'M': 0, 'Y': 0})
	time, ok2 := sum(clock, map[byte]float64{'H': 3600, 'M': 60, 'S': 1})
	total := days + time
	if !ok || !ok2 || total > recipe.MaxSeconds {
		return 0
	}
	return int(total + 0.5)
}

// sum adds numbers, each with a letter for its unit.
func sum(text string, units map[byte]float64) (float64, bool) {
	total := 0.0
	for text != "" {
		end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != ',' })
		if end <= 0 || end > 12 {
			return 0, false
		}
		value, err := strconv.ParseFloat(strings.ReplaceAll(text[:end], ",", "."), 64)
		unit, ok := units[text[end]]
		if err != nil || !ok || unit == 0 && value != 0 {
			return 0, false
		}
		total += value * unit
		text = text[end+1:]
	}
	return total, true
}
