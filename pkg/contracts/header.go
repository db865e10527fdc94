package contracts

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
)

// headerValues finds a header in any case. It tries the exact name first, which is the common case and costs one
// look-up.
func headerValues(header nats.Header, key string) []string {
	if values, ok := header[key]; ok {
		return values
	}
	var name string
	for existing := range header {
		// The smallest name wins, so that the answer does not depend on the order of a map.
		if strings.EqualFold(existing, key) && (name == "" || existing < name) {
			name = existing
		}
	}
	return header[name]
}

func one(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

const upperHex = "0123456789ABCDEF"

// percentEncode encodes space, double quote, percent and everything outside U+0021 to U+007E, each byte of its
// UTF-8 as %XY (CloudEvents NATS binding §3.1.3.2).
func percentEncode(value string) string {
	var b strings.Builder
	b.Grow(len(value))
	for i := range len(value) {
		c := value[i]
		if c > ' ' && c < 0x7f && c != '"' && c != '%' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
	return b.String()
}

// decodeHeaderValue removes quotes, then decodes percent-encoding once. Bytes that are not UTF-8 are refused, overlong
// forms and surrogates among them; text that needed no encoding, or was not encoded, is accepted.
func decodeHeaderValue(raw string) (value, problem string) {
	raw = strings.Trim(raw, " \t")
	if strings.HasPrefix(raw, `"`) {
		if raw, problem = unquote(raw); problem != "" {
			return "", problem
		}
	}
	if strings.IndexByte(raw, '%') >= 0 {
		if raw, problem = percentDecode(raw); problem != "" {
			return "", problem
		}
	}
	if !utf8.ValidString(raw) {
		return "", "is not UTF-8 after percent-decoding"
	}
	return raw, ""
}

// unquote reads a quoted-string of RFC 7230 §3.2.6.
func unquote(raw string) (value, problem string) {
	var b strings.Builder
	for i := 1; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			if i != len(raw)-1 {
				return "", "has text after its closing quote"
			}
			return b.String(), ""
		case '\\':
			i++
			if i == len(raw) {
				return "", "has no closing quote"
			}
		}
		b.WriteByte(raw[i])
	}
	return "", "has no closing quote"
}

func percentDecode(raw string) (value, problem string) {
	var b strings.Builder
	b.Grow(len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '%' {
			b.WriteByte(raw[i])
			continue
		}
		if i+2 >= len(raw) {
			return "", "ends within a percent-encoded byte"
		}
		char, err := hex.DecodeString(raw[i+1 : i+3])
		if err != nil {
			return "", "has a '%' without two hexadecimal digits"
		}
		b.Write(char)
		i += 2
	}
	return b.String(), ""
}
