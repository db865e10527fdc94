package measure

import (
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// ReadStep adds to a step the times and temperatures that its text names, in their order.
func ReadStep(step *recipe.Step) {
	ws := Split(words.Plain(step.Text))
	for i := 0; i < len(ws); {
		used := mark(step, ws, i)
		i += max(1, used)
	}
}

func mark(step *recipe.Step, ws []words.Word, i int) int {
	if t, used := ReadTemperature(ws, i); used > 0 && len(step.Temperatures) < recipe.MaxMarks {
		step.Temperatures = append(step.Temperatures, recipe.Temperature{
			Degrees: t.Min, MaxDegrees: t.Max, Scale: t.Scale, Level: t.Level, Raw: raw(ws[i : i+used]),
		})
		return used
	}
	if len(step.Times) == recipe.MaxMarks {
		return 0
	}
	if d, used := ReadDuration(ws, i); used > 0 {
		step.Times = append(step.Times, recipe.Duration{MinSec: d.Min, MaxSec: d.Max, Raw: raw(ws[i : i+used])})
		return used
	}
	if sign, used := ReadUntil(ws, i); used > 0 {
		step.Times = append(step.Times, recipe.Duration{Until: sign, Raw: raw(ws[i : i+used])})
		return 1 // the sign may contain a time
	}
	return 0
}

// raw returns words as written in their text.
func raw(ws []words.Word) string { return words.Cut(words.Join(ws), recipe.MaxNote) }
