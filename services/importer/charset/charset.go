// Package charset reads text in the encodings that pages and caption files have, as UTF-8.
package charset

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gogs/chardet"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
	"golang.org/x/text/transform"
)

// UTF8 is the name of the encoding that most texts have.
const UTF8 = "utf-8"

// sampleSize is the number of bytes at the beginning of a text that decide its encoding.
const sampleSize = 1 << 20

// Encoding is the encoding by which a text is read.
type Encoding struct {
	// Name is the encoding's name in the Encoding Standard, such as windows-1252, or utf-32.
	Name string
	// Guessed reports whether the encoding was guessed from the bytes, because neither caller nor text names it.
	Guessed bool
}

// Canonical returns the name of the Encoding Standard for a label of an encoding: windows-1251 for cp1251. For the empty
// label, which names no encoding, it returns "".
func Canonical(label string) (string, error) {
	e, known := lookup(label)
	switch {
	case label == "":
		return "", nil
	case !known:
		return "", fmt.Errorf("the encoding %.40q is not known: want a name such as windows-1252, windows-1251, iso-8859-2, koi8-r, "+
			"shift_jis, gb18030, big5 or euc-kr", label)
	default:
		return encodingOf(e, false).Name, nil
	}
}

// codec is an encoding. The zero value is UTF-8.
type codec struct{ encoding.Encoding }

// lookup finds an encoding by any of the labels that it has in the Encoding Standard.
func lookup(label string) (codec, bool) {
	e, err := htmlindex.Get(label)
	if e == unicode.UTF8 {
		e = nil
	}
	return codec{e}, err == nil && e != encoding.Replacement
}

// Declared returns the name that a text gives its encoding: in the header Content-Type, which may be empty, or in a meta
// element or an XML declaration at its beginning. It is empty when the text declares none.
func Declared(text []byte, contentType string) string {
	head := bytes.Map(func(r rune) rune {
		if r >= utf8.RuneSelf {
			return -1
		}
		return r
	}, text[:min(len(text), 1000)])
	// DetermineEncoding guesses UTF-8 for a text with an é that declares no encoding.
	if _, name, _ := charset.DetermineEncoding(append(head, "é "...), contentType); name != UTF8 {
		return name
	}
	if m := declaration.FindSubmatch(head); m != nil {
		return string(m[1])
	}
	return ""
}

var declaration = regexp.MustCompile(`^\s*<\?xml[^>]{1,200}\sencoding\s*=\s*["']([^"'>]{1,40})["']`)

// NewReader returns a reader of a text as UTF-8, with U+FFFD in place of bytes that the encoding does not have. UTF-8 is
// passed on unchanged. The encoding is the first of these: that of a byte order mark, the one that the caller names, UTF-8
// when the text is valid UTF-8, the one that the text declares if it fits, the one that is guessed from the bytes. named
// and declared may be empty. NewReader reads up to 1 MiB before it returns. The error is that of [Canonical].
func NewReader(r io.Reader, named, declared string) (io.Reader, Encoding, error) {
	if _, err := Canonical(named); err != nil {
		return nil, Encoding{}, err
	}
	buffered := bufio.NewReaderSize(r, sampleSize)
	sample, err := buffered.Peek(sampleSize)
	whole := errors.Is(err, io.EOF) // any other error comes again with the last bytes
	found, decoder, mark := choose(sample, whole, named, declared)
	if _, err := buffered.Discard(mark); err != nil {
		return nil, Encoding{}, fmt.Errorf("charset: %w", err)
	}
	if decoder == (codec{}) {
		return buffered, found, nil
	}
	return transform.NewReader(buffered, decoder.NewDecoder()), found, nil
}

// Decode is NewReader for a text in memory. UTF-8 is returned unchanged, without its byte order mark.
func Decode(text []byte, named, declared string) ([]byte, Encoding, error) {
	if _, err := Canonical(named); err != nil {
		return nil, Encoding{}, err
	}
	found, decoder, mark := choose(text[:min(len(text), sampleSize)], len(text) <= sampleSize, named, declared)
	text = text[mark:]
	if decoder == (codec{}) {
		return text, found, nil
	}
	text, err := decoder.NewDecoder().Bytes(text)
	if err != nil {
		return nil, found, fmt.Errorf("charset: %w", err)
	}
	return text, found, nil
}

// marks are the byte order marks; of two that begin alike the longer is first.
var marks = []struct {
	mark    string
	name    string
	decoder encoding.Encoding
}{
	{"\xef\xbb\xbf", UTF8, nil},
	{"\xff\xfe\x00\x00", "utf-32", utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM)},
	{"\x00\x00\xfe\xff", "utf-32", utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)},
	{"\xff\xfe", "utf-16le", unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)},
	{"\xfe\xff", "utf-16be", unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)},
}

// choose returns the encoding of a text, and the length of its byte order mark.
func choose(sample []byte, whole bool, named, declared string) (found Encoding, decoder codec, mark int) {
	for _, m := range marks {
		if bytes.HasPrefix(sample, []byte(m.mark)) {
			return Encoding{Name: m.name}, codec{m.decoder}, len(m.mark)
		}
	}
	if !whole {
		sample = toSpace(sample)
	}
	if e, ok := lookup(named); ok {
		return encodingOf(e, false), e, 0
	}
	if m := wide(sample); m >= 0 {
		return Encoding{Name: marks[m].name, Guessed: true}, codec{marks[m].decoder}, 0
	}
	good, bad := count(sample)
	if bad == 0 && bytes.IndexByte(sample, '\x1b') < 0 || bad*20 < good {
		return Encoding{Name: UTF8}, codec{}, 0
	}
	if e, ok := lookup(declared); ok && e != (codec{}) && fits(e, sample) {
		return encodingOf(e, false), e, 0
	}
	if e := guess(sample); e != (codec{}) {
		return encodingOf(e, true), e, 0
	}
	return Encoding{Name: UTF8}, codec{}, 0
}

// toSpace returns a text up to the last space, if there is one near the end. After it a character may be cut in two,
// and be no valid character.
func toSpace(text []byte) []byte {
	far := max(0, len(text)-1<<10)
	if i := bytes.LastIndexFunc(text[far:], func(r rune) bool { return r <= ' ' }); i >= 0 {
		return text[:far+i+1]
	}
	return text
}

func encodingOf(e codec, guessed bool) Encoding {
	name := UTF8
	if e != (codec{}) {
		name, _ = htmlindex.Name(e.Encoding) //nolint:errcheck // it was found there
	}
	return Encoding{Name: name, Guessed: guessed}
}

// wide returns the index in marks of the UTF-16 of a text without a byte order mark, -1 for any other text. In UTF-16, every
// other byte of Latin letters is 0.
func wide(sample []byte) int {
	var zeros [2]int
	for i, c := range sample[:min(len(sample), 4096)] {
		if c == 0 {
			zeros[i%2]++
		}
	}
	half := min(len(sample), 4096) / 2
	switch {
	case zeros[1]*3 > half && zeros[0]*10 < half:
		return 3
	case zeros[0]*3 > half && zeros[1]*10 < half:
		return 4
	default:
		return -1
	}
}

// count returns the number of characters of several bytes that a text has as UTF-8, and the number of bytes that
// belong to no character.
func count(text []byte) (good, bad int) {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			bad++
		} else if size > 1 {
			good++
		}
		text = text[size:]
	}
	return good, bad
}

// fits reports whether nearly all of a text can be read in an encoding.
func fits(e codec, sample []byte) bool {
	text, err := e.NewDecoder().Bytes(sample)
	if err != nil {
		return false
	}
	strange := 0
	for _, r := range string(text) {
		if r == utf8.RuneError || r == '\x1b' || r >= 0x80 && r < 0xa0 {
			strange++
		}
	}
	return strange*200 <= utf8.RuneCount(text)
}

// foreign returns the words of a text with characters that are not ASCII: the names of data around a text are not in its
// language. The separators of words are no part of a character in any encoding.
func foreign(text []byte) []byte {
	words := bytes.FieldsFunc(text, func(r rune) bool { return r <= ' ' && r != '\x1b' || strings.ContainsRune(`"<>,:`, r) })
	words = slices.DeleteFunc(words, func(word []byte) bool {
		return !bytes.ContainsFunc(word, func(r rune) bool { return r >= utf8.RuneSelf || r == '\x1b' })
	})
	return bytes.Join(words, []byte(" "))
}

// guessSize is the number of bytes from which an encoding is guessed.
const guessSize = 64 << 10

// guess returns the likeliest encoding that fits a text, UTF-8 when none does. The text has characters that are not ASCII.
func guess(sample []byte) codec {
	first := bytes.IndexFunc(sample, func(r rune) bool { return r >= utf8.RuneSelf || r == '\x1b' })
	sample = sample[max(0, first-guessSize/2):]
	if len(sample) > guessSize {
		sample = toSpace(sample[:guessSize])
	}
	var results []chardet.Result
	for _, part := range [][]byte{sample, foreign(sample)} {
		if found, err := chardet.NewHtmlDetector().DetectAll(part); err == nil {
			results = append(results, found...)
		}
	}
	slices.SortFunc(results, func(a, b chardet.Result) int {
		return cmp.Or(b.Confidence-a.Confidence, strings.Compare(a.Charset, b.Charset))
	})
	for _, result := range append(results, chardet.Result{Charset: "windows-1252"}) {
		if e, ok := lookup(strings.Replace(result.Charset, "GB-", "GB", 1)); ok && e != (codec{}) && fits(e, sample) {
			return e
		}
	}
	return codec{}
}
