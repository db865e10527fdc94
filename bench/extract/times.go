package main

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

var numberWords = strings.NewReplacer(
	"half an hour", "30 minutes", "half hour", "30 minutes", "an hour and a half", "90 minutes", "an hour", "1 hours", "a minute", "1 minutes",
	"a couple of", "2", "a couple", "2", "couple", "2", " to ", "-", " or ", "-", "–", "-",
	"one hundred", "100", "two hundred", "200", "eleven", "11", "fifteen", "15", "eighteen", "18", "twenty five", "25", "thirty five", "35", "forty five", "45", "twenty", "20",
	"thirty", "30", "forty", "40", "fifty", "50", "sixty", "60", "ten", "10", "twelve", "12", "eight", "8", "seven", "7", "six", "6", "five", "5",
	"four", "4", "three", "3", "two", "2", "one", "1",
)

var span = regexp.MustCompile(`(\d+(?:\.\d+)?)(?:\s*-\s*(\d+(?:\.\d+)?))?\s*(second|sec|minute|min|hour|hr|h\b)`)

// bounds reads the seconds of a marked time; 0, 0 when it names no number.
func bounds(text string) (low, high int) {
	m := span.FindStringSubmatch(numberWords.Replace(strings.ToLower(text)))
	if m == nil {
		return 0, 0
	}
	unit := map[byte]float64{'s': 1, 'm': 60, 'h': 3600}[m[3][0]]
	a, _ := strconv.ParseFloat(m[1], 64) //nolint:errcheck // the pattern matched digits
	b := a
	if m[2] != "" {
		b, _ = strconv.ParseFloat(m[2], 64) //nolint:errcheck // the pattern matched digits
	}
	return int(a * unit), int(b * unit)
}

func parts(text string) []string {
	var out []string
	for _, part := range regexp.MustCompile(`[;；]`).Split(text, -1) {
		if strings.TrimSpace(part) != "" {
			out = append(out, part)
		}
	}
	return out
}

// judgeTimes compares the times that people marked in a sentence with those of the steps in which it lies. Signs such as
// "until golden" are left out: people marked none.
func judgeTimes(r row, made *recipe.Recipe) rig.Counts {
	var found [][2]int
	for _, s := range stepsIn(r, made) {
		for _, d := range s.Times {
			if d.Until == "" && said(r.text, d.Raw) {
				found = append(found, [2]int{d.MinSec, d.MaxSec})
			}
		}
	}
	var marked [][2]int
	for _, part := range parts(r.times) {
		low, high := bounds(part)
		marked = append(marked, [2]int{low, high})
	}
	return compare(r, found, marked, func(a, b [2]int) bool { return a == b })
}

// judgeTemperatures does the same for temperatures: degrees by their number, levels by their words.
func judgeTemperatures(r row, made *recipe.Recipe) rig.Counts {
	var found, marked []string
	for _, s := range stepsIn(r, made) {
		for _, t := range s.Temperatures {
			if said(r.text, t.Raw) {
				found = append(found, t.Raw)
			}
		}
	}
	marked = parts(r.temperatures)
	return compare(r, found, marked, func(a, b string) bool {
		return degrees(a) != "" && degrees(a) == degrees(b) || level(a) != "" && level(a) == level(b)
	})
}

var figures = regexp.MustCompile(`\d{2,3}`)

// degrees returns the number of a temperature in digits, however it is written: "350", "three hundred fifty", "three fifty".
func degrees(text string) string {
	text = strings.ToLower(text)
	if found := figures.FindString(text); found != "" {
		return found
	}
	sum, hundreds, last := 0, 0, 0
	for _, w := range letters.FindAllString(text, -1) {
		x, known := spelled[w]
		switch {
		case w == "hundred" && last > 0:
			hundreds, last = last, 0
		case !known:
			continue
		case last > 0 && last < 10 && x >= 10: // "three fifty"
			hundreds, last = last, x
		default:
			last += x
		}
		sum = 100*hundreds + last
	}
	if sum == 0 {
		return ""
	}
	return strconv.Itoa(sum)
}

var spelled = map[string]int{
	"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "fifteen": 15,
	"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}

var levels = regexp.MustCompile(`very|low|medium|high|simmer|boil`)

func level(text string) string {
	return strings.TrimPrefix(strings.Join(levels.FindAllString(strings.ToLower(text), -1), " "), "very ")
}

// compare pairs what was found in a sentence with what was marked. What was found in an unmarked sentence is not judged.
func compare[T any](r row, found, marked []T, equal func(a, b T) bool) rig.Counts {
	var c rig.Counts
	if !r.step {
		return c
	}
	used := make([]bool, len(found))
	for _, m := range marked {
		right := false
		for i, f := range found {
			if !used[i] && !right && equal(f, m) {
				used[i], right = true, true
			}
		}
		c.Add(right, true)
	}
	for _, u := range used {
		if !u {
			c.Wrong++
		}
	}
	return c
}

func stepsIn(r row, made *recipe.Recipe) []*recipe.Step {
	var out []*recipe.Step
	for i := range made.Steps {
		s := &made.Steps[i]
		if s.Timestamp != nil && s.End != nil && *s.Timestamp < r.end-slack && *s.End > r.start+slack {
			out = append(out, s)
		}
	}
	return out
}

// said reports whether a mark of a step was read from this sentence and not from another of the same step.
func said(text, raw string) bool {
	squeeze := func(s string) string { return strings.Join(letters2.FindAllString(strings.ToLower(s), -1), " ") }
	return strings.Contains(squeeze(text), squeeze(raw))
}

var letters2 = regexp.MustCompile(`[\p{L}\d]+`)
