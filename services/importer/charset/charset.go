// Package charset reads text in the encodings of the Encoding Standard, as pages and caption files have them, as UTF-8.
package charset

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

// UTF8 is the name of the encoding that most texts have.
const UTF8 = "utf-8"

// Encoding is the encoding by which a text is read.
type Encoding struct {
	// Name is the encoding's name in the Encoding Standard, such as windows-1252.
	Name string
	// Guessed reports whether neither caller nor text names the encoding, and the text is not UTF-8. The
	// encoding is then the one whose letters make words, or windows-1252.
	Guessed bool
}

// Canonical returns the name of the Encoding Standard for a label of an encoding: windows-1251 for cp1251. For the empty
// label, which names no encoding, it returns "".
func Canonical(label string) (string, error) {
	_, name := charset.Lookup(label)
	if label != "" && (name == "" || name == "replacement") {
		return "", fmt.Errorf("the encoding %.40q is not known: want a name such as windows-1252, windows-1251, iso-8859-2, koi8-r, "+
			"shift_jis, gb18030, big5 or euc-kr", label)
	}
	return name, nil
}

// Decode returns a text as UTF-8, with U+FFFD in place of bytes that the encoding does not have. A text that is UTF-8 is
// returned unchanged, without its byte order mark. The encoding is the first of these: that of a byte order mark, the one
// that the caller names, UTF-8 if the text is (many pages declare another by mistake), the one that the header Content-Type
// or a meta element declares, a guess by the letters of the text. named and contentType may be empty. The error is that of [Canonical].
func Decode(text []byte, named, contentType string) ([]byte, Encoding, error) {
	found, err := choose(text, named, contentType)
	if err != nil {
		return nil, found, err
	}
	if found.Name == UTF8 {
		return bytes.TrimPrefix(text, []byte("\ufeff")), found, nil
	}
	encoding, _ := charset.Lookup(found.Name)
	if text, err = encoding.NewDecoder().Bytes(text); err != nil {
		return nil, found, fmt.Errorf("charset: %w", err)
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), found, nil
}

func choose(text []byte, named, contentType string) (Encoding, error) {
	name, err := Canonical(named)
	if err != nil {
		return Encoding{}, err
	}
	if _, mark, certain := charset.DetermineEncoding(text, ""); certain { // nothing else is certain without a header
		return Encoding{Name: mark}, nil
	}
	if name != "" {
		return Encoding{Name: name}, nil
	}
	foreign, isUTF8 := inspect(text)
	if foreign && isUTF8 {
		return Encoding{Name: UTF8}, nil
	}
	// DetermineEncoding takes the head, with an é, for UTF-8 when neither it nor the header declares an encoding.
	head := bytes.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return -1
		}
		return r
	}, text[:min(len(text), 1000)])
	if _, declared, _ := charset.DetermineEncoding(append(head, "é "...), contentType); declared != UTF8 && declared != "replacement" {
		return Encoding{Name: declared}, nil
	}
	if isUTF8 {
		return Encoding{Name: UTF8}, nil
	}
	return Encoding{Name: guess(text), Guessed: true}, nil
}

// inspect reports whether a text has bytes that are not ASCII, and whether it is UTF-8, but for a few bytes: a text that was
// cut ends within a character.
func inspect(text []byte) (foreign, isUTF8 bool) {
	good, bad := 0, 0
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			bad++
		} else if size > 1 {
			good++
		}
		text = text[size:]
	}
	return good+bad > 0, bad == 0 || bad*20 < good
}
