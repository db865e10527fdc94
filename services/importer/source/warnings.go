package source

import (
	"fmt"
	"slices"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/charset"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
)

// Codes of the warnings that this package gives.
const (
	// WarnCharacters says that characters could not be read, and are U+FFFD.
	WarnCharacters = "characters_lost"
	// WarnCues says that captions were left out because their times cannot be read.
	WarnCues = "captions_skipped"
	// WarnEncoding says that nothing names the encoding of the text, and as which it was read.
	WarnEncoding = "encoding_guessed"
	// WarnLanguage says that the source has nothing in the language that is wanted.
	WarnLanguage = "language_unavailable"
)

// replacement stands for characters that cannot be read.
const replacement = "\ufffd"

// warnf adds a warning, once.
func (m *Material) warnf(code, format string, args ...any) {
	if w := (recipe.Warning{Code: code, Text: fmt.Sprintf(format, args...)}); !slices.Contains(m.Warnings, w) {
		m.Warnings = append(m.Warnings, w)
	}
}

// decode returns what was fetched as UTF-8. An encoding that is a guess adds a warning.
func (m *Material) decode(response *fetch.Response, request Request) ([]byte, error) {
	text, found, err := charset.Decode(response.Body, request.Encoding, charset.Declared(response.Body, response.ContentType))
	if err != nil {
		return nil, failed(contracts.CodeUnavailable, err, "The text cannot be decoded: %s", err)
	}
	m.readAs(found)
	return text, nil
}

func (m *Material) readAs(found charset.Encoding) {
	if found.Guessed {
		m.warnf(WarnEncoding, "Nothing names the encoding of the text. It was read as %s, which it looks like.", found.Name)
	}
}

// lost adds a warning for characters that could not be read.
func (m *Material) lost(characters int) {
	if characters > 0 {
		m.warnf(WarnCharacters, "%d characters could not be read; if the text has another encoding than it declares, name that.", characters)
	}
}

// compareLanguage adds a warning when the material is in another language than the one that is wanted, which may be empty.
func (m *Material) compareLanguage(wanted string) {
	want, err := language.Parse(wanted)
	got, err2 := language.Parse(m.Language)
	if err != nil || err2 != nil {
		return
	}
	wantBase, _ := want.Base()
	if gotBase, _ := got.Base(); gotBase != wantBase {
		m.warnf(WarnLanguage, "The source has nothing in %s: it was read in %s.", want, got)
	}
}
