package canonical

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	// plain is how many digits there are before the point, at most, where no exponent is written (ECMA-262, Number::toString).
	plain = 21

	// leading is how many zeros there are after "0." at most.
	leading = 5

	// maxExponent bounds numbers: far beyond what anything measures, far below where exponents overflow.
	maxExponent = 1_000_000
)

var errExponent = fmt.Errorf("number is beyond 1e±%d", maxExponent)

// number appends a JSON number to dst in the notation of ECMAScript, which RFC 8785 takes over: the digits without zeros
// at either end, and an exponent outside of 1e-6 to 1e21. All spellings of a value become one, and no two values do.
func number(dst []byte, text string) ([]byte, error) {
	sign, digits, point, err := parse(text)
	if err != nil {
		return nil, err
	}
	if digits == "" {
		return append(dst, '0'), nil // -0 too
	}
	dst = append(dst, sign...)
	switch n := len(digits); {
	case n <= point && point <= plain:
		dst = append(dst, digits...)
		return append(dst, strings.Repeat("0", point-n)...), nil
	case 0 < point && point <= plain:
		dst = append(dst, digits[:point]...)
		dst = append(dst, '.')
		return append(dst, digits[point:]...), nil
	case -leading <= point && point <= 0:
		dst = append(dst, "0."...)
		dst = append(dst, strings.Repeat("0", -point)...)
		return append(dst, digits...), nil
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	dst = append(dst, 'e')
	if point > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(point-1), 10), nil
}

// parse takes a JSON number apart: its value is 0.digits times 10 to the power of point. Digits neither begin nor end
// with a zero; zero has none.
func parse(text string) (sign, digits string, point int, err error) {
	rest, negative := strings.CutPrefix(text, "-")
	if negative {
		sign = "-"
	}
	if e := strings.IndexAny(rest, "eE"); e >= 0 {
		exponent := rest[e+1:]
		rest = rest[:e]
		point, err = strconv.Atoi(exponent)
		if err != nil || max(point, -point) > math.MaxInt32 {
			return "", "", 0, errExponent
		}
	}
	whole, fraction, _ := strings.Cut(rest, ".")
	digits = whole + fraction
	point += len(whole)
	significant := strings.TrimLeft(digits, "0")
	point -= len(digits) - len(significant)
	if digits = strings.TrimRight(significant, "0"); digits != "" && max(point, -point) > maxExponent {
		return "", "", 0, errExponent
	}
	return sign, digits, point, nil
}
