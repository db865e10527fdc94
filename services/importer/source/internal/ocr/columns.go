package ocr

import (
	"slices"
	"strings"
	"unicode"
)

// byColumns returns the lines of a page with two columns one column after the other, where the program has read across them. A line that
// has words between the columns ends both. Other pages are returned as they are.
func byColumns(rows [][]word) [][]word {
	gutter := findGutter(rows)
	if gutter == 0 {
		return rows
	}
	var out, left, right [][]word
	flush := func() {
		for _, column := range [][][]word{left, right} {
			if len(column) > 0 {
				out = append(append(out, column...), nil)
			}
		}
		left, right = nil, nil
	}
	for _, row := range rows {
		l, r, crossed := split(row, gutter)
		if crossed {
			flush()
			out = append(out, row)
			continue
		}
		if len(l) > 0 || len(r) == 0 {
			left = append(left, l)
		}
		if len(r) > 0 {
			right = append(right, r)
		}
	}
	flush()
	return out
}

// split returns the words of a line on both sides of x. crossed reports that words, or no more than a space, are there.
func split(row []word, x int) (left, right []word, crossed bool) {
	at := slices.IndexFunc(row, func(w word) bool { return w.right > x })
	if at < 0 {
		return row, nil, false
	}
	tall := 0
	for _, w := range row {
		tall = max(tall, w.height)
	}
	left, right = row[:at], row[at:]
	return left, right, right[0].left <= x || at > 0 && right[0].left-left[at-1].right <= tall*3/2
}

// findGutter returns a place in the gap between two columns, 0 where there is none: three lines or more, and more than have words in it,
// have a wide gap there. A list whose amounts are a column has no gutter.
func findGutter(rows [][]word) (gutter int) {
	widest := 0
	for _, row := range rows {
		for _, w := range row {
			widest = max(widest, w.right)
		}
	}
	const step = 8 // a page is a few thousand pixels wide
	for x, most := step, 2; x < widest; x += step {
		var wide [][2][]word
		cuts := 0
		for _, row := range rows {
			left, right, crossed := split(row, x)
			if crossed {
				cuts++
			} else if len(left) > 0 && len(right) > 0 {
				wide = append(wide, [2][]word{left, right})
			}
		}
		if len(wide) > max(most, cuts) && !amounts(wide, 0) && !amounts(wide, 1) {
			gutter, most = x, len(wide)
		}
	}
	return gutter
}

// amounts reports whether most parts on a side are numbers, alone or with a unit.
func amounts(parts [][2][]word, side int) bool {
	n := 0
	for _, p := range parts {
		if len(p[side]) <= 2 && strings.ContainsFunc(p[side][0].text, unicode.IsNumber) {
			n++
		}
	}
	return 2*n > len(parts)
}
