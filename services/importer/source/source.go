package source

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/charset"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
)

// Kinds of caption tracks.
const (
	// TrackManual is a track that a person made.
	TrackManual = "manual"
	// TrackAutomatic is a track that a machine made by listening.
	TrackAutomatic = "automatic"
)

// Request names a source.
type Request struct {
	// Encoding is a label of the Encoding Standard, such as windows-1251: that of a file or page that is not UTF-8. Defaults to
	// what the source declares, or looks like.
	Encoding string
	// JobID is the job that wants it. Temporary files are kept apart by it; it is never part of a path.
	JobID string
	// Language is a BCP 47 tag: the language that is wanted where there are several, and that of what does not say. Defaults
	// to what is spoken.
	Language string
	// Type is a source type of package contracts. Defaults to what the URL looks like.
	Type string
	// URL is the address, http or https.
	URL string
}

// Chapter is a named part of a video.
type Chapter struct {
	// Start counts from the beginning of the video.
	Start time.Duration `json:"start"`
	// Title is what the publisher calls it.
	Title string `json:"title"`
}

// Track says which captions were taken.
type Track struct {
	// Kind is manual or automatic; empty when the source has no choice of tracks.
	Kind string `json:"kind,omitempty"`
	// Language is the language as the source names it, such as "en" or "pt-BR"; empty when it names none.
	Language string `json:"language,omitempty"`
}

// Material is what a source holds. It keeps its meaning through JSON.
type Material struct {
	// ID is the identity of the source, as Identify returns it.
	ID string `json:"id"`
	// Type is the source type that it was read as, one of package contracts.
	Type string `json:"type"`
	// Title, Author and Description are the publisher's words; empty where there are none.
	Title       string `json:"title,omitempty"`
	Author      string `json:"author,omitempty"`
	Description string `json:"description,omitempty"`
	// Language is that of the track or page, such as "en"; empty when it is not known.
	Language string `json:"language,omitempty"`
	// URL is the address in the form that ID was made of.
	URL string `json:"url"`
	// Duration is the length of the video; zero when it is not known.
	Duration time.Duration `json:"duration,omitempty"`
	// Chapters are in order; may be empty.
	Chapters []Chapter `json:"chapters,omitempty"`
	// Track says which captions were taken.
	Track Track `json:"track,omitzero"`
	// Transcript is the spoken text; without segments where a page gave a recipe or a photo is still to be read.
	Transcript caption.Transcript `json:"transcript,omitzero"`
	// Recipe is the recipe that a page itself holds, cleaned and valid; nil when there is none.
	Recipe *recipe.Recipe `json:"recipe,omitempty"`
	// Image is a photo, and ImageType its media type as the bytes show it: "image/jpeg".
	Image     []byte `json:"image,omitempty"`
	ImageType string `json:"image_type,omitempty"`
	// Sure is the text of a photo without the numbers that could not be read well. Description has all of it.
	Sure string `json:"sure,omitempty"`
	// Truncated reports that a limit cut something.
	Truncated bool `json:"truncated,omitempty"`
	// Warnings say what a reader of the recipe should know of how the source was read; may be empty.
	Warnings []recipe.Warning `json:"warnings,omitempty"`
	// Version names what read the source, so that a cache can tell what an older one has read.
	Version string `json:"version"`
}

// Fetcher gets material. [Sources] is the one that goes out for it.
type Fetcher interface {
	// Identify returns the identity of a source: equal for requests that would fetch the same. It validates the request and
	// does not touch the network. The error is an [*Error].
	Identify(ctx context.Context, request Request) (id string, err error)
	// Fetch returns what the source holds. It calls progress, which may be nil, with the name of the step that begins and
	// the share of the work that is done, from 0 to 1, in the caller's goroutine. The error is an [*Error], and the cause
	// of ctx when that was cancelled.
	Fetch(ctx context.Context, request Request, progress func(step string, share float64)) (*Material, error)
}

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
