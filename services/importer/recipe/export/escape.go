package export

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// line makes one line of a text, without characters that cannot be seen.
func line(text string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))), " ")
}

// Characters that mean something in Cooklang, by where they stand. A backslash takes the meaning away.
const (
	inText   = `\@#~`
	inName   = `\@#~{}|%()`
	inAmount = `\{}%|*=`
	inNote   = `\()`
)

// escape puts a backslash before special characters, and before what would begin a comment: "--" and "[-".
func escape(text, special string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		next := byte(0)
		if i+1 < len(text) {
			next = text[i+1]
		}
		if strings.IndexByte(special, c) >= 0 || (c == '-' || c == '[') && next == '-' {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// escapeFirst puts a backslash before the first character where it is one of those that mean something in that place.
func escapeFirst(text, special string) string {
	if text != "" && strings.IndexByte(special, text[0]) >= 0 {
		return `\` + text
	}
	return text
}

var (
	// plainScalar is text that YAML reads as itself without quotes, keywords excepted.
	plainScalar = regexp.MustCompile(`^\p{L}([\p{L}\p{N} ,'()/&!._-]*[\p{L}\p{N})!.])?$`)
	plainNumber = regexp.MustCompile(`^[1-9][0-9]{0,5}( \p{L}+|[hms]|h[0-9]+[ms]|m[0-9]+s|h[0-9]+m[0-9]+s)?$`)
	plainURL    = regexp.MustCompile(`^https?://[[:graph:]]*[0-9A-Za-z/_=-]$`)
	keywords    = regexp.MustCompile(`(?i)^(true|false|null|yes|no|on|off|y|n)$`)
)

// yaml writes a text as a YAML scalar on one line: as it is where that is safe, so that simple readers get along, and else
// in double quotes. The escapes of Go are among those of YAML.
func yaml(text string) string {
	if plainScalar.MatchString(text) && !keywords.MatchString(text) || plainNumber.MatchString(text) || plainURL.MatchString(text) {
		return text
	}
	return strconv.Quote(strings.ToValidUTF8(text, ""))
}
