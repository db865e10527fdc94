package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
	"github.com/expediter-io/expediter/services/importer/source/internal/page"
)

// SchemaOrg is what recipes name as their extractor that were read from the data of a page.
const SchemaOrg = "schema-org"

// web fetches a page: its recipe, or else the captions of its video.
func (s *Sources) web(ctx context.Context, request Request, m *Material, progress func(string, float64)) error {
	progress("page", 0)
	response, err := s.get(ctx, m.URL, "text/html, application/xhtml+xml, */*;q=0.1", s.config.MaxBytes)
	if err != nil {
		return fetchError(ctx, "The page", err)
	}
	m.Truncated = response.Truncated
	progress("parse", 0.5)
	if request.Type == "" { // it was a guess
		if done, err := s.guessed(ctx, request, m, response, progress); done {
			return err
		}
	}
	text, err := m.decode(response, request)
	if err != nil {
		return err
	}
	p := page.Parse(bytes.ToValidUTF8(text, []byte(replacement)), response.URL)
	m.Title, m.Author, m.Language = cmp.Or(line(p.Title), titleOf(m.URL)), line(p.Author), line(p.Language)
	var cut bool
	m.Description, cut = paragraphs(p.Description)
	m.Truncated = m.Truncated || p.Truncated || cut
	found, ok := p.Recipe()
	track, hasTrack := p.Choose(request.Language)
	switch {
	case ok && len(found.Ingredients) > 0 && len(found.Steps) > 0:
		return s.pageRecipe(m, found, p)
	case hasTrack:
		if ok {
			m.Description = listed(m.Description, found)
		}
		return s.pageTrack(ctx, request, m, track, progress)
	case ok:
		return failed(contracts.CodeInvalidRecipe, nil, "The recipe of the page is not whole: it has %d ingredients and %d steps",
			len(found.Ingredients), len(found.Steps))
	default:
		return failed(contracts.CodeExtractionFailed, nil,
			"No recipe found: the page has neither schema.org/Recipe data nor a video with captions")
	}
}

// pageRecipe checks a recipe as one that an extractor made. Its evidence is the page's data itself.
func (s *Sources) pageRecipe(m *Material, found *recipe.Recipe, p *page.Page) error {
	found.Source = recipe.Source{Type: contracts.SourceWeb, Ref: m.URL, Extractor: SchemaOrg}
	found.Title = cmp.Or(found.Title, m.Title, extract.Untitled)
	in := extract.Input{Title: found.Title, Description: listed(found.Description+"\n"+found.Servings, found)}
	m.lost(strings.Count(in.Title+in.Description, replacement))
	extract.Clean(found)
	if tag, err := language.Parse(p.Language); found.Language == "" && err == nil {
		found.Language = tag.String()
	}
	extract.Verify(found, in)
	if err := found.Validate(); err != nil {
		return failed(contracts.CodeInvalidRecipe, err, "The recipe of the page is not valid")
	}
	m.Title, m.Author, m.Recipe = found.Title, line(p.Author), found
	if found.Description != "" {
		m.Description = found.Description
	}
	if found.Language != "" {
		m.Language = found.Language
	}
	return nil
}

// listed adds what is known of a recipe to a description, in the form in which people write it there.
func listed(description string, r *recipe.Recipe) string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace(description))
	if len(r.Ingredients) > 0 {
		b.WriteString("\n\nIngredients:\n")
	}
	for _, i := range r.Ingredients {
		b.WriteString(i.Raw + "\n")
	}
	if len(r.Steps) > 0 {
		b.WriteString("\nMethod:\n")
	}
	for _, step := range r.Steps {
		b.WriteString(step.Text + "\n")
	}
	return strings.TrimSpace(b.String())
}

// pageTrack fetches the captions of the video on a page.
func (s *Sources) pageTrack(ctx context.Context, request Request, m *Material, track page.Track, progress func(string, float64)) error {
	progress("captions", 0.6)
	response, err := s.client.Get(ctx, track.URL, acceptCaptions, s.config.MaxBytes)
	if err != nil {
		return trackError(fetchError(ctx, "The caption file", err))
	}
	progress("parse", 0.9)
	m.Truncated = m.Truncated || response.Truncated
	m.Track = Track{Kind: TrackManual, Language: line(track.Language)}
	m.Language = m.Track.Language
	return s.parseFile(m, response, request, true)
}

// trackError says of captions that a page names and its site does not hand out that they are blocked: the page is there.
func trackError(err error) error {
	var e *Error
	if errors.As(err, &e) && (e.Code == contracts.CodeUnavailable || e.Code == contracts.CodePrivate) {
		return &Error{Code: contracts.CodeCaptionsBlocked, Message: e.Message, Err: e.Err}
	}
	return err
}

// guessed reads an answer that is no page, where the address looked like one.
func (s *Sources) guessed(
	ctx context.Context, request Request, m *Material, response *fetch.Response, progress func(string, float64),
) (done bool, err error) {
	kind, _, _ := strings.Cut(response.ContentType, ";")
	signed := bytes.HasPrefix(begin(response.Body), []byte("WEBVTT"))
	switch kind = strings.ToLower(strings.TrimSpace(kind)); {
	case signed, kind == "text/vtt", kind == "application/x-subrip":
		m.Type, m.Title = contracts.SourceCaptions, titleOf(m.URL)
		return true, s.parseFile(m, response, request, true)
	case imageType(response.Body) != "" && !response.Truncated:
		m.Type = contracts.SourcePhoto
		return true, s.seePhoto(ctx, request.JobID, m, response.Body, progress)
	default:
		return false, nil
	}
}
