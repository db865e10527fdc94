package preview

import (
	"strings"
	"unicode/utf16"
)

// Segments is what an SMS is sent, and paid, as.
type Segments struct {
	// Encoding is GSM-7 or UCS-2.
	Encoding string

	// Number is how many there are.
	Number int
}

// The characters of GSM 03.38: one each, and two each.
const (
	basic = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?" +
		"¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
	extra = "\f^{}\\[~]|€"
)

// CountSegments returns how many segments a text is sent in. One character that GSM-7 lacks makes all of it UCS-2.
func CountSegments(text string) Segments {
	s := Segments{Encoding: "GSM-7"}
	alone, each := 160, 153
	if strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(basic+extra, r) }) {
		s.Encoding, alone, each = "UCS-2", 70, 67
	}
	total, used := 0, each
	for _, r := range text {
		size := 1
		if s.Encoding == "UCS-2" {
			size = utf16.RuneLen(r)
		} else if strings.ContainsRune(extra, r) {
			size = 2
		}
		if total += size; used+size > each { // no character is divided
			s.Number++
			used = 0
		}
		used += size
	}
	if total <= alone {
		s.Number = min(total, 1)
	}
	return s
}
