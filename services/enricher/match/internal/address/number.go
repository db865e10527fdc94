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
	n, ok := value(low)
	if !ok {
		return Number{}, false
	}
	house := Number{Low: n, High: n, Digits: len(low)}
	if isLetterSuffix(rest) {
		return house, true
	}
	separator := rest[0]
	if !strings.ContainsRune("-/+.", rune(separator)) {
		return Number{}, false
	}
	second, tail := digits(rest[1:])
	if second == "" {
		return house, isLetterSuffix(strings.TrimPrefix(rest[1:], "-")) // "293-b"
	}
	high, ok := value(second)
	if !ok || !isLetterSuffix(tail) && tail[0] != '-' && tail[0] != '/' {
		return Number{}, false
	}
	if separator == '-' { // "12/3" is house 12, flat 3
		house.to(high, len(second))
	}
	return house, true
}

// to reads what follows a dash.
func (n *Number) to(high, digits int) {
	decades := pow10(digits)
	switch {
	case high > n.Low && high-n.Low <= 100:
		n.High = high
	case high < n.Low && n.Digits > max(digits, 2) && digits <= 2 && high > n.Low%decades:
		n.High = n.Low - n.Low%decades + high // "201-7" is 201 to 207
	case n.Digits <= 3 && digits == 2:
		n.Low = n.Low*100 + high
		n.High = n.Low
	}
}

// value is the value of at most nine digits.
func value(digits string) (int, bool) {
	if digits == "" || len(digits) > 9 {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil
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
