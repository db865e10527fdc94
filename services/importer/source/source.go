package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/charset"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
	"github.com/expediter-io/expediter/services/importer/source/internal/ocr"
	"github.com/expediter-io/expediter/services/importer/source/internal/program"
	"github.com/expediter-io/expediter/services/importer/source/internal/ytdlp"
)

// The types of sources that the importer reads. An ImportJob may name others.
const (
	// TypeYouTube is a video whose captions are fetched.
	TypeYouTube = "youtube"
	// TypeCaptions is a caption file or its URL.
	TypeCaptions = "captions"
	// TypeWeb is a page with schema.org/Recipe data.
	TypeWeb = "web"
	// TypePhoto is a photo of a recipe.
	TypePhoto = "photo"
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
	// Encoding is the encoding of a file or page that is not UTF-8: a label of the Encoding Standard, such as windows-1251.
	// Defaults to the encoding that the source declares, UTF-8, or a guess.
	Encoding string
	// JobID is the id of the job. It separates temporary files, but is never part of a path.
	JobID string
	// Language is a BCP 47 tag: the wanted language of several, and the language of a source that names none. Defaults to
	// the spoken language.
	Language string
	// Type is a source type of package contracts. Defaults to a guess from the URL.
	Type string
	// URL is the address, http or https.
	URL string
}

// Track describes the captions that were taken.
type Track struct {
	// Kind is manual or automatic; empty when the source has no choice of tracks.
	Kind string `json:"kind,omitempty"`
	// Language is the language as the source names it, such as "en" or "pt-BR"; empty when it names none.
	Language string `json:"language,omitempty"`
}

// Material is the content of a source. It keeps its meaning through JSON.
type Material struct {
	// ID is the identity of the source, as Identify returns it.
	ID string `json:"id"`
	// Type is the source type, of package contracts, as which the source was read.
	Type string `json:"type"`
	// Title, Author and Description are the publisher's words; empty where there are none.
	Title       string `json:"title,omitempty"`
	Author      string `json:"author,omitempty"`
	Description string `json:"description,omitempty"`
	// Language is the language of the track or page, such as "en"; empty when it is not known.
	Language string `json:"language,omitempty"`
	// URL is the address from which ID was made.
	URL string `json:"url"`
	// Duration is the length of the video; zero when it is not known.
	Duration time.Duration `json:"duration,omitempty"`
	// Chapters are in order; may be empty.
	Chapters []extract.Chapter `json:"chapters,omitempty"`
	// Track describes the captions that were taken.
	Track Track `json:"track,omitzero"`
	// Transcript is the spoken text. It has no segments when a page has a recipe as data, or a photo is still to be
	// read.
	Transcript caption.Transcript `json:"transcript,omitzero"`
	// Recipe is the recipe that a page itself holds, cleaned and valid; nil when there is none.
	Recipe *recipe.Recipe `json:"recipe,omitempty"`
	// Image is a photo, and ImageType its media type as the bytes show it: "image/jpeg".
	Image     []byte `json:"image,omitempty"`
	ImageType string `json:"image_type,omitempty"`
	// Sure is the text of a photo without the numbers that could not be read well. Description has the whole text.
	Sure string `json:"sure,omitempty"`
	// Truncated reports whether a limit cut the material.
	Truncated bool `json:"truncated,omitempty"`
	// Warnings are remarks on the reading of the source for the reader of the recipe; may be empty.
	Warnings []recipe.Warning `json:"warnings,omitempty"`
	// Version identifies the reader of the source: this package and yt-dlp.
	Version string `json:"version"`
}

// Fetcher fetches material. [Sources] fetches it from the network.
type Fetcher interface {
	// Identify validates a request and returns the identity of its source, which is equal for requests that would fetch the
	// same. It does not use the network. The error is an [*Error].
	Identify(ctx context.Context, request Request) (id string, err error)
	// Fetch returns the content of the source. It calls progress, which may be nil, with the share of the work that is
	// done, from 0 to 1, in the caller's goroutine. The error is an [*Error], and the
	// cause of ctx when that was cancelled.
	Fetch(ctx context.Context, request Request, progress func(share float64)) (*Material, error)
}

// Codes of the warnings that this package gives.
const (
	// WarnCharacters means that characters could not be read, and are U+FFFD.
	WarnCharacters = "characters_lost"
	// WarnEncoding means that the text is not UTF-8, neither request nor source names its encoding, and it was guessed.
	WarnEncoding = "encoding_guessed"
	// WarnNoCaptions means that the captions of a video cannot be had, and the recipe is that of its description.
	WarnNoCaptions = "no_captions"
	// WarnPageText means that the recipe was read from the text of a page, which has none as data.
	WarnPageText = "page_text"
	// WarnLanguage means that the source has no text in the wanted language.
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

// decode returns the body of a response as UTF-8. An encoding that is a guess adds a warning.
func (m *Material) decode(response *fetch.Response, request Request) ([]byte, error) {
	text, found, err := charset.Decode(response.Body, request.Encoding, response.ContentType)
	if err != nil {
		return nil, failed(failure.Unavailable, err, "The text cannot be decoded: %s", err)
	}
	if found.Guessed {
		m.warnf(WarnEncoding, "Nothing names the encoding of the text. It was read as %s; if it has another, name that.", found.Name)
	}
	return text, nil
}

// lost adds a warning for characters that could not be read.
func (m *Material) lost(characters int) {
	if characters > 0 {
		m.warnf(WarnCharacters, "%d characters could not be read; if the text has another encoding than it declares, name that.", characters)
	}
}

// compareLanguage adds a warning when the material is not in the wanted language, which may be empty.
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

// maxMessage bounds the messages of errors, maxText titles, names and languages, and maxDescription descriptions, in bytes.
const (
	maxMessage     = 500
	maxText        = 1000
	maxDescription = 64 << 10
)

// Version is raised when the same source would give different material. It is part of the keys of caches.
const Version = "6"

const version = "expediter/" + Version

// Sources fetches from the network. It is safe for concurrent use and owns no goroutines between calls.
type Sources struct {
	client *fetch.Client
	config Config
	heic   *ocr.Converter // nil where heif-convert is missing
	log    *slog.Logger
	photos *ocr.Reader   // nil where tesseract is missing
	videos *ytdlp.Client // nil when YouTube is left out
}

var _ Fetcher = (*Sources)(nil)

// New returns sources with a configuration, or an error that names every mistake in it. With YouTube, it runs yt-dlp for
// its version, which takes about half a second.
func New(config Config) (*Sources, error) {
	named := config.Photo.Program != "" || config.Photo.Languages != ""
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Sources{
		client: fetch.New(fetch.Config{Allow: config.AllowNetworks, Timeout: config.Timeout, UserAgent: config.UserAgent}),
		config: config,
		log:    config.Logger,
	}
	folders, err := program.NewFolders(config.TempDir, s.log)
	if err != nil {
		return nil, err
	}
	if err := s.setPhoto(folders, named); err != nil {
		return nil, err
	}
	if y := config.YouTube; y != nil {
		ctx := context.Background() //nolint:forbidigo // asking for a version is bounded, and nobody has a context when setting up
		s.videos, err = ytdlp.New(ctx, ytdlp.Config{
			CAFile: y.CAFile, Extractors: "youtube", Folders: folders, MaxFile: config.MaxBytes, Path: y.Program, Proxy: y.Proxy,
			SocketTimeout: y.SocketTimeout, Timeout: y.Timeout, VersionTimeout: max(y.Timeout, minVersionTimeout),
		})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrYouTube, err)
		}
	}
	return s, nil
}

// Identify implements [Fetcher].
func (s *Sources) Identify(_ context.Context, request Request) (string, error) {
	t, err := s.identify(request)
	if err != nil {
		return "", err
	}
	return t.id, nil
}

// Fetch implements [Fetcher]. It takes as long as the site takes, but no longer than the limits of [Config] for each
// resource.
func (s *Sources) Fetch(ctx context.Context, request Request, progress func(share float64)) (*Material, error) {
	t, err := s.identify(request)
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(float64) {}
	}
	own := *s
	own.client = s.client.Session()
	s = &own
	m := &Material{ID: t.id, Type: t.kind, URL: t.url, Version: version}
	switch t.kind {
	case TypeYouTube:
		err = s.youTube(ctx, request.JobID, t, m, progress)
	case TypeCaptions:
		err = s.captions(ctx, request, m, progress)
	case TypePhoto:
		err = s.photo(ctx, request, m, progress)
	case TypeWeb:
		err = s.web(ctx, request, m, progress)
	default:
		panic("source: identify let an unknown type pass: " + t.kind)
	}
	if failed, ok := errors.AsType[*Error](err); ok && failed.Site == Site(t.url) {
		failed.Site = ""
	}
	if err != nil {
		return nil, err
	}
	if t.kind == TypeCaptions || t.kind == TypePhoto || m.Language == "" {
		m.Language = cmp.Or(t.language, m.Language) // the request's language overrides a file's, but not a page's
	}
	m.compareLanguage(t.language)
	if err := s.enough(m); err != nil {
		return nil, err
	}
	progress(1)
	return m, nil
}

// enough returns an error for material that is too short to hold a recipe.
func (s *Sources) enough(m *Material) error {
	if m.Recipe != nil || len(m.Image) > 0 && len(m.Transcript.Segments) == 0 {
		return nil
	}
	said := 0
	for _, segment := range m.Transcript.Segments {
		said += utf8.RuneCountInString(segment.Text)
	}
	if said >= minTranscript || utf8.RuneCountInString(m.Description) >= minTranscript || rules.Written(m.Description) {
		return nil
	}
	return failed(failure.TooShort, nil, messageTooShort, said)
}

// paragraphs bounds an untrusted text, and keeps its lines.
func paragraphs(text string) (string, bool) {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\r', r == '\v', r == '\f', r == '\u0085', r == '\u2028', r == '\u2029':
			return '\n'
		case unicode.IsControl(r) && r != '\n' && r != '\t':
			return -1
		}
		return r
	}, strings.ToValidUTF8(strings.ReplaceAll(text, "\r\n", "\n"), "\ufffd"))
	short := redact.Clip(text, maxDescription)
	return short, len(short) < len(text)
}

// line makes one bounded line of an untrusted text.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	return redact.Clip(strings.Join(strings.Fields(text), " "), maxText)
}
