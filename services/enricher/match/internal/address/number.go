package address

import (
	"strconv"
	"strings"
)

// Number is a house number or a range of them.
type Number struct {
	Low, High int
	// Digits is the length of the first number as written.
	Digits int
}

// parseNumber reads "12", "12a", "12-14", "293-b", "12/3", "37-16" (one number in Queens).
func parseNumber(s string) (Number, bool) {
	low, rest := digits(s)
	if low == "" || len(low) > 9 {
		return Number{}, false
	}
	n := Number{Digits: len(low)}
	n.Low, _ = strconv.Atoi(low)
	n.High = n.Low
	if rest == "" || isLetterSuffix(rest) {
		return n, true
	}
	sep := rest[0]
	if sep != '-' && sep != '/' && sep != '+' && sep != '.' {
		return Number{}, false
	}
	second, tail := digits(rest[1:])
	if second == "" {
		return n, isLetterSuffix(strings.TrimPrefix(rest[1:], "-"))
	}
	if tail != "" && !isLetterSuffix(tail) && tail[0] != '-' && tail[0] != '/' {
		return Number{}, false
	}
	if len(second) > 9 {
		return Number{}, false
	}
	high, _ := strconv.Atoi(second)
	switch {
	case sep != '-':
		// "12/3" is house 12, flat 3.
	case high > n.Low && high-n.Low <= 100:
		n.High = high
	case high < n.Low && len(low) > len(second) && len(second) <= 2 && high > n.Low%pow10(len(second)) && len(low) > 2:
		n.High = n.Low - n.Low%pow10(len(second)) + high // "201-7" is 201 to 207
	case len(low) <= 3 && len(second) == 2:
		n.Low = n.Low*100 + high
		n.High = n.Low
	}
	return n, true
}

func digits(s string) (head, rest string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// isLetterSuffix reports whether s is the letter of a house number: "12a", "12א", "12bis".
func isLetterSuffix(s string) bool {
	switch s {
	case "bis", "ter":
		return true
	case "":
		return true
	}
	r := []rune(s)
	return len(r) == 1 && (r[0] >= 'a' && r[0] <= 'z' || r[0] > 0x7F)
}

func pow10(n int) int {
	p := 1
	for range n {
		p *= 10
	}
	return p
}
