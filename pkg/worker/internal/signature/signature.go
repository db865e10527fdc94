// Package signature groups error texts: texts that differ only in ids, numbers and quoted values have the same signature.
package signature

import (
	"regexp"
	"strings"

	"github.com/expediter-io/expediter/pkg/redact"
)

// maxLength bounds a signature, in bytes.
const maxLength = 200

// maxInput bounds the part of a text that is read, in bytes.
const maxInput = 4 << 10

var rules = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'|` + "`[^`]*`"), `"…"`},
	{regexp.MustCompile(`(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b`), "<id>"},
	{regexp.MustCompile(`(?i)\b(?:0x)?[0-9a-f]{12,}\b`), "<id>"},
	{regexp.MustCompile(`(?i)\b(?:0x)?(?:[0-9]+[a-f]|[a-f]+[0-9])[0-9a-f]+\b`), "<id>"},
	{regexp.MustCompile(`\b[A-Za-z0-9_-]*[0-9][A-Za-z0-9_-]{19,}\b`), "<id>"},
	{regexp.MustCompile(`[0-9]+(?:\.[0-9]+)*`), "#"},
	{regexp.MustCompile(`\s+`), " "},
}

// Of returns the signature of an error text: at most 200 bytes of valid UTF-8 on one line.
func Of(text string) string {
	if len(text) > maxInput {
		text = text[:maxInput]
	}
	text = strings.ToValidUTF8(text, "?")
	for _, rule := range rules {
		text = rule.pattern.ReplaceAllString(text, rule.with)
	}
	return redact.Clip(strings.TrimSpace(text), maxLength)
}
