package worker

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestSignatureLeavesOutWhatDiffersFromJobToJob(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "",
		"EOF":                           "EOF",
		"status 429 after 1.5s":         "status # after #s",
		`place "ChIJ 12" not found`:     `place "…" not found`,
		"open '/tmp/a b': no such file": `open "…": no such file`,
		"job 550e8400-e29b-41d4-a716-446655440000 failed": "job <id> failed",
		"key 0x0123456789abcdef":                          "key <id>",
		"request a1b2c3d4 of 7f":                          "request <id> of #f",
		"commit 00ffaa12":                                 "commit <id>",
		"face added a decade ago":                         "face added a decade ago",
		"id N4ZK3V5Q0Y6B2C1D9E8F7G expired":               "id <id> expired",
		"dial tcp 10.0.0.7:4222: refused":                 "dial tcp #:#: refused",
		"line one\n\tline two":                            "line one line two",
		"bad \xff byte":                                   "bad ? byte",
	} {
		check.Same(t, text, signatureOf(text), want)
	}
}

func FuzzSignature(f *testing.F) {
	f.Add(strings.Repeat("é", 300))
	f.Add("a \"b")
	f.Fuzz(func(t *testing.T, text string) {
		got := signatureOf(text)
		check.That(t, len(got) <= 200 && utf8.ValidString(got) && !strings.ContainsAny(got, "\n\r\t"), "%q gives %q", text, got)
	})
}
