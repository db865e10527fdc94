package similar

// Edits returns the number of insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal
// string alignment), or limit+1 as soon as it is known to be more than limit. It does not allocate.
func Edits(a, b []rune, limit int) int {
	a, b = a[:min(len(a), Longest)], b[:min(len(b), Longest)]
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	a, b = trim(a, b)
	if limit == 1 && max(len(a), len(b)) > 2 { // both ends differ, and more than one swap lies between
		return 2
	}
	var rows [3][Longest + 1]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		best := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			row[j] = d
			best = min(best, d)
		}
		if best > limit {
			return limit + 1
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit+1)
}

// trim drops what both begin and end with, which needs no edit.
func trim(a, b []rune) (restA, restB []rune) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}
