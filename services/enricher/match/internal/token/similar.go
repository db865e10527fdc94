package token

// Longest is the number of runes of each string that JaroWinkler and Edits look at.
const Longest = 64

// JaroWinkler returns the Jaro-Winkler similarity of two strings in [0,1]: 1 for equal strings, 0 when they share no rune
// in reach. Prefix scale 0.1, at most four runes of prefix, as in Winkler 1990. It does not allocate.
func JaroWinkler(a, b []rune) float64 {
	a, b = a[:min(len(a), Longest)], b[:min(len(b), Longest)]
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	jaro := jaro(a, b)
	prefix := 0
	for prefix < 4 && prefix < len(a) && prefix < len(b) && a[prefix] == b[prefix] {
		prefix++
	}
	return jaro + 0.1*float64(prefix)*(1-jaro)
}

func jaro(a, b []rune) float64 {
	reach := max(max(len(a), len(b))/2-1, 0)
	var takenA, takenB uint64 // one bit a rune
	matches := 0
	for i, r := range a {
		for j := max(0, i-reach); j <= min(len(b)-1, i+reach); j++ {
			if b[j] == r && takenB&(1<<j) == 0 {
				takenA |= 1 << i
				takenB |= 1 << j
				matches++
				break
			}
		}
	}
	if matches == 0 {
		return 0
	}
	m := float64(matches)
	half := float64(transposed(a, b, takenA, takenB)) / 2
	return (m/float64(len(a)) + m/float64(len(b)) + (m-half)/m) / 3
}

// transposed counts the matched runes that stand in another order.
func transposed(a, b []rune, takenA, takenB uint64) int {
	n, j := 0, 0
	for i, r := range a {
		if takenA&(1<<i) == 0 {
			continue
		}
		for takenB&(1<<j) == 0 {
			j++
		}
		if r != b[j] {
			n++
		}
		j++
	}
	return n
}

// Edits returns the number of insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal
// string alignment), or limit+1 when the number is larger than limit. It does not allocate.
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

// trim drops the common prefix and suffix, which need no edit.
func trim(a, b []rune) (restA, restB []rune) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}
