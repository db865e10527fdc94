package measure

import (
	"math"

	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// Duration is a duration in seconds. Both bounds are 0 when the words have no number ("a few minutes", "overnight").
type Duration struct{ Min, Max int }

const longest = 7 * 24 * 3600

var timeUnits = map[string]float64{
	"second": 1, "seconds": 1, "sec": 1, "secs": 1, "s": 1, "sekunde": 1, "sekunden": 1, "segundo": 1, "segundos": 1,
	"seconde": 1, "secondes": 1, "secondo": 1, "secondi": 1, "секунд": 1, "секунды": 1, "שניות": 1,
	"minute": 60, "minutes": 60, "min": 60, "mins": 60, "minuten": 60, "minuto": 60, "minutos": 60, "minuti": 60,
	"минут": 60, "минуты": 60, "минуту": 60, "мин": 60, "דקות": 60, "דקה": 60,
	"hour": 3600, "hours": 3600, "hr": 3600, "hrs": 3600, "h": 3600, "stunde": 3600, "stunden": 3600, "std": 3600, "hora": 3600, "horas": 3600,
	"heure": 3600, "heures": 3600, "ora": 3600, "ore": 3600, "час": 3600, "часа": 3600, "часов": 3600, "שעה": 3600, "שעות": 3600,
	"秒": 1, "秒钟": 1, "분": 60, "초": 1, "분간": 60, "시간": 3600, "นาที": 60, "วินาที": 1, "ชั่วโมง": 3600, "دقيقة": 60, "دقائق": 60, "ساعة": 3600,
	"分": 60, "分钟": 60, "分鐘": 60, "分間": 60, "小时": 3600, "小時": 3600, "時間": 3600,
	"day": 86400, "days": 86400, "tag": 86400, "tage": 86400, "tagen": 86400,
}

// ReadDuration reads "5 minutes", "an hour and a half", "1 h 30 min", "half an hour", "2 or 3 hours", "a few minutes",
// "overnight".
func ReadDuration(ws []words.Word, i int) (d Duration, used int) { return duration(ws, i, true) }

// duration reads a duration, also a range with ranges. The upper bound of a range is read without ranges, which
// bounds the time for a chain of durations.
func duration(ws []words.Word, i int, ranges bool) (d Duration, used int) {
	if at(ws, i) == "overnight" || at(ws, i) == "über" && at(ws, i+1) == "nacht" {
		return Duration{}, map[bool]int{true: 1, false: 2}[at(ws, i) == "overnight"]
	}
	n, used := ReadNumber(ws, i)
	if used == 0 {
		return Duration{}, 0
	}
	if at(ws, i+used) == "-" || isSize(at(ws, i+used)) {
		used++
	}
	unit, ok := timeUnits[at(ws, i+used)]
	if !ok || isShort(at(ws, i+used)) && ws[i+used-1].Kind != words.Digits {
		return minuteAndHalf(ws, i, n, used)
	}
	used++
	if n.Vague {
		return Duration{}, used
	}
	low, high, used := bounds(ws, i, used, n, unit, ranges)
	if high > longest {
		return Duration{}, 0
	}
	return Duration{Min: int(math.Round(low)), Max: int(math.Round(high))}, used
}

// bounds reads the words after a number and its unit, and returns the bounds in seconds.
func bounds(ws []words.Word, i, used int, n Number, unit float64, ranges bool) (low, high float64, all int) {
	low, high = n.Min*unit, n.Max*unit
	if at(ws, i+used) == "." && isShort(at(ws, i+used-1)) && i+used+1 < len(ws) && ws[i+used+1].Kind == words.Digits {
		used++
	}
	if extra, more := rest(ws, i+used, unit); more > 0 {
		return low + extra, high + extra, used + more
	}
	// "one minute to two minutes", "45 seconds to a minute"
	if w := at(ws, i+used); ranges && high == low && (w == "to" || w == "or" || w == "-") {
		if next, more := duration(ws, i+used+1, false); more > 0 && float64(next.Max) > high {
			return low, float64(next.Max), used + 1 + more
		}
	}
	return low, high, used
}

func isSize(w string) bool {
	return w == "more" || w == "full" || w == "good" || w == "whole" || w == "extra"
}

func isShort(w string) bool { return w == "s" || w == "h" }

// minuteAndHalf reads "a half hour" and the like, where the article was read as a number.
func minuteAndHalf(ws []words.Word, i int, n Number, used int) (Duration, int) {
	if n.Vague || at(ws, i+used) != "of" {
		return Duration{}, 0
	}
	skip := used + 1
	if isArticle(at(ws, i+skip)) {
		skip++
	}
	unit, ok := timeUnits[at(ws, i+skip)]
	if !ok || isShort(at(ws, i+skip)) {
		return Duration{}, 0
	}
	return Duration{Min: int(n.Min * unit), Max: int(n.Max * unit)}, skip + 1
}

// rest reads the words after the larger unit: "30 minutes", "and a half", "and 20 minutes".
func rest(ws []words.Word, i int, unit float64) (extra float64, used int) {
	skip := 0
	if w := at(ws, i); w == "and" || w == "," {
		skip = 1
	}
	if skip == 1 && at(ws, i) == "and" {
		if part, more := aPart(ws, i+1); more > 0 {
			if smaller, ok := timeUnits[at(ws, i+1+more)]; ok && smaller < unit {
				return part * smaller, 2 + more
			}
			return part * unit, 1 + more
		}
	}
	x, more := single(ws, i+skip)
	if more == 0 {
		return 0, 0
	}
	smaller, ok := timeUnits[at(ws, i+skip+more)]
	if !ok || smaller >= unit || isShort(at(ws, i+skip+more)) && ws[i+skip].Kind != words.Digits {
		return 0, 0
	}
	return x * smaller, skip + more + 1
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
		if stops[w.Lower] && !(w.Lower == "and" && isSign(at(ws, end+1)) && end > i+1) {
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

func isSign(w string) bool { return signs[w] }
