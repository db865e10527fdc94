package caption

import (
	"html"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// number matches a numeric character reference, and the beginning of what is none.
var number = regexp.MustCompile(`&#(?:[xX][0-9a-fA-F]+|[0-9]+)?;?`)

// unescape replaces the character references of HTML, as its rules have it outside of attributes: the semicolon may be
// missing after some names. The standard library stumbles over numbers of one or of many digits, and over none: all are
// written as it reads them.
func unescape(text string) string {
	if strings.Contains(text, "&#") {
		text = number.ReplaceAllStringFunc(text, func(reference string) string {
			digits, base := strings.TrimSuffix(reference[2:], ";"), 10
			if digits == "" {
				return "&amp;" + reference[1:]
			}
			if hex := strings.TrimLeft(digits, "xX"); hex != digits {
				digits, base = hex, 16
			}
			code, err := strconv.ParseInt(digits, base, 32)
			if err != nil {
				code = utf8.MaxRune + 1 // as any other that is no character
			}
			return "&#" + strconv.FormatInt(code, 10) + ";"
		})
	}
	return html.UnescapeString(text)
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
