package source

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
	"github.com/expediter-io/expediter/services/importer/source/internal/ocr"
	"github.com/expediter-io/expediter/services/importer/source/internal/program"
	"github.com/expediter-io/expediter/services/importer/source/internal/ytdlp"
)

// maxMessage bounds the messages of errors, maxText titles, names and languages, and maxDescription descriptions, in bytes.
const (
	maxMessage     = 500
	maxText        = 1000
	maxDescription = 64 << 10
)

// version is raised when the same source would give other material than before.
const version = "expediter/4"

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

// New returns sources that are set up by a configuration, or an error that names everything that is wrong with it. Where
// YouTube is turned on, it asks yt-dlp for its version, which takes about half a second.
func New(config Config) (*Sources, error) {
	named := config.Photo.Program != "" || config.Photo.Languages != ""
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Sources{
		client: fetch.New(fetch.Config{Allow: config.AllowNetworks, Timeout: config.Timeout, UserAgent: userAgent}),
		config: config,
		log:    config.Logger,
	}
	folders, err := program.NewFolders(config.TempDir)
	if err != nil {
		return nil, err
	}
	if err := s.setPhoto(folders, named); err != nil {
		return nil, err
	}
	if y := config.YouTube; y != nil {
		ctx := context.Background() //nolint:forbidigo // asking for a version is bounded, and nobody has a context when setting up
		s.videos, err = ytdlp.New(ctx, ytdlp.Config{
			CAFile: y.CAFile, Extractors: "youtube", Folders: folders, Log: s.log, MaxFile: config.MaxBytes, Path: y.Program, Proxy: y.Proxy,
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
func (s *Sources) Fetch(ctx context.Context, request Request, progress func(step string, share float64)) (*Material, error) {
	t, err := s.identify(request)
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(string, float64) {}
	}
	m := &Material{ID: t.id, Type: t.kind, URL: t.url, Version: version}
	switch t.kind {
	case contracts.SourceYouTube:
		err = s.youTube(ctx, request.JobID, t, m, progress)
	case contracts.SourceCaptions:
		err = s.captions(ctx, request, m, progress)
	case contracts.SourcePhoto:
		err = s.photo(ctx, request.JobID, m, progress)
	case contracts.SourceWeb:
		err = s.web(ctx, request, m, progress)
	default:
		panic("source: identify let an unknown type pass: " + t.kind)
	}
	if err != nil {
		return nil, err
	}
	if t.kind == contracts.SourceCaptions || t.kind == contracts.SourcePhoto || m.Language == "" {
		m.Language = cmp.Or(t.language, m.Language) // who asks knows better than a file, and not better than a page
	}
	m.compareLanguage(t.language)
	if err := s.enough(m); err != nil {
		return nil, err
	}
	progress("fetched", 1)
	return m, nil
}

// enough refuses material that is too short to hold a recipe.
func (s *Sources) enough(m *Material) error {
	if m.Recipe != nil || len(m.Image) > 0 && len(m.Transcript.Segments) == 0 {
		return nil
	}
	said := 0
	for _, segment := range m.Transcript.Segments {
		said += utf8.RuneCountInString(segment.Text)
	}
	if said >= minTranscript || utf8.RuneCountInString(m.Description) >= minTranscript {
		return nil
	}
	return failed(contracts.CodeTooShort, nil, messageTooShort, said)
}

// paragraphs makes a bounded text of what a stranger wrote. Its lines stay.
func paragraphs(text string) (string, bool) {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(strings.ReplaceAll(text, "\r\n", "\n"), "\ufffd"))
	short := cut(text, maxDescription)
	return short, len(short) < len(text)
}

// line makes one bounded line of a text that a stranger wrote.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	return cut(strings.Join(strings.Fields(text), " "), maxText)
}

// cut shortens a text to a number of bytes without breaking a character.
func cut(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && !utf8.RuneStart(text[size]) {
		size--
	}
	return text[:size]
}
