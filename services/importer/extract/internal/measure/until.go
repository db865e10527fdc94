package measure

import "github.com/expediter-io/expediter/services/importer/extract/internal/words"

// untilWords bounds a sign by which something is done.
const untilWords = 8

// stops end the sign after "until".
var stops = set(`and then so but because cause about for while which or you'll when if now just okay ok add stir pour`)

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

// signs are what food looks and feels like when it is done.
var signs = set(`brown browned golden crisp crispy tender soft softened fragrant translucent thick thickened smooth fluffy bubbly
bubbling firm opaque melted creamy done hot warm pale light dry sticky glossy cooked evaporated`)

func isSign(w string) bool { return signs[w] }
