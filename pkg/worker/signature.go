package worker

import (
	"regexp"
	"strings"

	"github.com/expediter-io/expediter/pkg/redact"
)

// maxSignature bounds a signature, in bytes.
const maxSignature = 200

// signatureRules replace what differs between errors of one kind.
var signatureRules = []struct {
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

// signatureOf returns the signature of an error text, which is equal for texts that differ only in ids, numbers and quoted values: at most
// 200 bytes of valid UTF-8 on one line.
func signatureOf(text string) string {
	text = clip(text, maxErrorText)
	for _, rule := range signatureRules {
		text = rule.pattern.ReplaceAllString(text, rule.with)
	}
	return redact.Clip(strings.TrimSpace(text), maxSignature)
}
