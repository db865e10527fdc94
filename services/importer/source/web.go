package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
	"github.com/expediter-io/expediter/services/importer/source/internal/page"
	"github.com/expediter-io/expediter/services/importer/source/internal/ytdlp"
)

// SchemaOrg is the extractor named in recipes that were read from the data of a page.
const SchemaOrg = "schema-org"

// maxRefreshes bounds the pages that only lead to another one, as redirects do.
const maxRefreshes = 5

// open fetches and parses a page. A page that has nothing and leads to another one by a refresh is replaced by that one. done reports that
// the answer was no page and has become the material.
func (s *Sources) open(ctx context.Context, request Request, m *Material, progress func(float64)) (p *page.Page, done bool, err error) {
	address := m.URL
	for hops := 0; ; hops++ {
		response, err := s.get(ctx, address, "text/html, application/xhtml+xml, */*;q=0.1", s.config.MaxBytes)
		if err != nil {
			return nil, false, fetchError(ctx, "The page", err)
		}
		m.Truncated, m.Warnings = response.Truncated, nil
		progress(0.5)
		if request.Type == "" { // the type was a guess
			if done, err := s.guessed(ctx, request, m, response, progress); done {
				return nil, done, err
			}
		}
		text, err := m.decode(response, request)
		if err != nil {
			return nil, false, err
		}
		p := page.Parse(bytes.ToValidUTF8(text, []byte(replacement)), response.URL)
		if p.Refresh == "" || p.Refresh == response.URL.String() || isFile(m.URL) || hops == maxRefreshes || len(p.Tracks) > 0 {
			return p, false, nil
		}
		if _, ok := p.Recipe(); ok {
			return p, false, nil
		}
		address = p.Refresh
	}
}

// web fetches a page: its recipe, or else the captions of its video.
func (s *Sources) web(ctx context.Context, request Request, m *Material, progress func(float64)) error {
	p, done, err := s.open(ctx, request, m, progress)
	if done || err != nil {
		return err
	}
	m.Title, m.Author, m.Language = cmp.Or(line(p.Title), titleOf(m.URL)), line(p.Author), line(p.Language)
	var cut bool
	m.Description, cut = paragraphs(p.Description)
	m.Truncated = m.Truncated || p.Truncated || cut
	found, ok := p.Recipe()
	track, hasTrack := p.Choose(request.Language)
	switch {
	case ok && len(found.Ingredients) > 0 && (len(found.Steps) > 0 || !hasTrack && len(p.Faults) == 0):
		return s.pageRecipe(ctx, m, found, p)
	case hasTrack:
		if ok {
			m.Description = listed(m.Description, found)
		}
		return s.pageTrack(ctx, request, m, track, progress)
	case s.config.PageText && m.pageText(p.Text()):
		return nil
	case ok:
		return failed(failure.InvalidRecipe, nil, "The recipe of the page is not whole: it has %d ingredients and %d steps%s",
			len(found.Ingredients), len(found.Steps), faults(p))
	case len(p.Faults) > 0:
		return failed(failure.ExtractionFailed, nil, "No recipe found in the data of the page%s", faults(p))
	default:
		return failed(failure.ExtractionFailed, nil,
			"No recipe found: the page has neither schema.org/Recipe data nor a video with captions. If a browser shows a recipe, "+
				"hand in its text as .txt; a model, where one is configured, reads the text of such a page itself")
	}
}

// pageText takes the text of a page for the description, and reports whether it is long enough to hold a recipe.
func (m *Material) pageText(text string) bool {
	text, cut := paragraphs(text)
	if utf8.RuneCountInString(text) < minTranscript {
		return false
	}
	m.Description, m.Truncated = text, m.Truncated || cut
	m.lost(strings.Count(text, replacement))
	m.warnf(WarnPageText, "The page has no whole recipe as data: the recipe was read from its text.")
	return true
}

// faults returns the end of a message about a page: what is wrong with its data.
func faults(p *page.Page) string {
	if len(p.Faults) == 0 {
		return ""
	}
	return "; the data is not valid JSON: " + strings.Join(p.Faults[:min(3, len(p.Faults))], "; ")
}

// pageRecipe checks a recipe of a page like a recipe of an extractor. The evidence is the page's data itself.
func (s *Sources) pageRecipe(ctx context.Context, m *Material, found *recipe.Recipe, p *page.Page) error {
	found.Source = recipe.Source{Type: TypeWeb, Ref: m.URL, Extractor: SchemaOrg}
	found.Title = cmp.Or(found.Title, m.Title, extract.Untitled)
	in := extract.Input{Title: found.Title, Description: listed(found.Description+"\n"+found.Servings, found)}
	m.lost(strings.Count(in.Title+in.Description, replacement))
	extract.Clean(found)
	for _, s := range found.Steps {
		if s.Timestamp != nil {
			in.Segments = append(in.Segments, caption.Segment{Start: time.Duration(*s.Timestamp * float64(time.Second)), Text: s.Text})
		}
	}
	if tag, err := language.Parse(p.Language); found.Language == "" && err == nil {
		found.Language = tag.String()
	}
	if err := extract.Verify(ctx, found, in); err != nil {
		return err
	}
	found.Remark("", p.Remark) // which Verify has removed
	if err := found.Validate(); err != nil {
		return failed(failure.InvalidRecipe, err, "The recipe of the page is not valid")
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

// listed adds the parts of a recipe to a description, in the form in which people write descriptions.
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
func (s *Sources) pageTrack(ctx context.Context, request Request, m *Material, track page.Track, progress func(float64)) error {
	progress(0.6)
	response, err := s.client.Get(ctx, track.URL, acceptCaptions, s.config.MaxBytes)
	if err != nil {
		err = fetchError(ctx, "The caption file", err)
		var e *Error
		if errors.As(err, &e) && (e.Code == failure.Unavailable || e.Code == failure.Private) {
			return &Error{Code: failure.CaptionsBlocked, Message: e.Message, Err: e.Err} // the page itself is available
		}
		return err
	}
	progress(0.9)
	m.Truncated = m.Truncated || response.Truncated
	m.Track = Track{Kind: TrackManual, Language: line(track.Language)}
	m.Language = m.Track.Language
	return s.parseFile(m, response, request, true)
}

// guessed reads an answer that is not a page although its address looked like a page.
func (s *Sources) guessed(
	ctx context.Context, request Request, m *Material, response *fetch.Response, progress func(float64),
) (done bool, err error) {
	kind, _, _ := strings.Cut(response.ContentType, ";")
	signed := bytes.HasPrefix(begin(response.Body), []byte("WEBVTT"))
	switch kind = strings.ToLower(strings.TrimSpace(kind)); {
	case signed, kind == "text/vtt", kind == "application/x-subrip":
		m.Type, m.Title = TypeCaptions, titleOf(m.URL)
		return true, s.parseFile(m, response, request, true)
	case imageType(response.Body) != "" && !response.Truncated:
		m.Type = TypePhoto
		return true, s.seePhoto(ctx, request.JobID, m, response.Body, progress)
	default:
		return false, nil
	}
}

var (
	// trailing matches the suffix that browsers append to a second copy, and yt-dlp to each: "(1)",
	// "[dQw4w9WgXcQ]".
	trailing = lazyregexp.New(`[\s._-]*(?:\(\d+\)|\[[\w-]{11}\])\s*$`)

	// nothing has words for kinds of files, which do not describe the content.
	nothing = strings.Fields("auto caption captions cc clip copy default dl download dsc file image img index " +
		"ingredientes ingredienti " + //nolint:misspell // Spanish
		"ingredients ingrédients input mov new orig output photo picture pxl recipe scan screen screenshot shot srt sub subs " +
		"subtitle subtitles test text timedtext tmp track transcript transcription txt untitled upload vid video vtt " +
		"whatsapp zutaten")
)

// titleOf returns a title for a file without one, from the last segment of its address: "tomato soup" for
// "tomato-soup.en.vtt". It is empty when the segment cannot name a dish, such as a number.
func titleOf(address string) string {
	name := ""
	if file, err := contracts.ParseFileURL(address); err == nil {
		name = file.Name
	} else if u, err := url.Parse(address); err == nil {
		name = path.Base(u.Path)
	}
	name = withoutLanguage(strings.TrimSuffix(name, path.Ext(name)))
	name = trailing.ReplaceAllString(name, "")
	if !strings.Contains(name, " ") {
		name = strings.NewReplacer("-", " ", "_", " ", "+", " ", ".", " ").Replace(name)
	}
	return dish(line(name))
}

// dish returns a title, or "" when none of its words can name a dish.
func dish(title string) string {
	for word := range strings.FieldsSeq(strings.ToLower(title)) {
		if word = strings.TrimRight(word, ":"); tells(word) && !slices.Contains(nothing, word) {
			return title
		}
	}
	return ""
}

// tells reports whether a word can name a dish: it has three letters, or two of a script with many letters, and is no id or
// hash. Ids and hashes mix letters and digits, or are Latin without a vowel.
func tells(word string) bool {
	letters, vowels, foreign := 0, 0, 0
	for _, r := range word {
		switch {
		case unicode.IsDigit(r):
			return false
		case r > unicode.MaxASCII && unicode.IsLetter(r):
			letters, foreign = letters+1, foreign+1
		case unicode.IsLetter(r):
			letters++
		}
		if strings.ContainsRune("aeiouy", r) {
			vowels++
		}
	}
	return letters > 2 && vowels > 0 || foreign > 1
}

// withoutLanguage removes the language that downloaders of captions put before the file ending: ".en", ".pt-BR".
func withoutLanguage(name string) string {
	ext := path.Ext(name)
	if len(ext) < 3 || len(ext) > 12 || ext == name {
		return name
	}
	tag := strings.TrimSuffix(ext[1:], "-orig")
	if base, _, _ := strings.Cut(tag, "-"); len(base) > 3 {
		return name
	}
	if _, err := language.Parse(tag); err != nil {
		return name
	}
	return strings.TrimSuffix(name, ext)
}

// youTube fetches a video. Only the id in the request is passed to the program, which has 11 characters of a fixed
// alphabet.
func (s *Sources) youTube(ctx context.Context, jobID string, t target, m *Material, progress func(float64)) error {
	if s.videos == nil {
		return failed(failure.Unavailable, nil, "Videos of YouTube are not fetched here: it is not turned on")
	}
	video, err := s.videos.Fetch(ctx, jobID, m.URL, t.language, progress)
	if video == nil {
		return videoError(err)
	}
	if string(video.ID) != t.video {
		return failed(failure.Unavailable, nil, "The site answered with another video")
	}
	progress(0.9)
	m.Version = version + " yt-dlp/" + s.videos.Version
	if err = s.video(m, video, videoError(err)); err == nil {
		return nil
	}
	var e *Error // without captions, the description may be the recipe
	silent := errors.As(err, &e) && (e.Code == failure.NoCaptions || e.Code == failure.CaptionsBlocked)
	if !silent || !rules.Written(m.Description) {
		return err
	}
	m.Track = Track{}
	m.warnf(WarnNoCaptions, "The video has no captions that can be read: the recipe is that of its description.")
	return nil
}

// video fills in the material. err is the error of a video whose captions could not be fetched; it is returned.
func (s *Sources) video(m *Material, video *ytdlp.Video, err error) error {
	m.Title, m.Author, m.Duration = line(string(video.Title)), line(video.Author()), video.Duration()
	m.Description, m.Truncated = paragraphs(string(video.Description))
	for _, chapter := range video.Chapters {
		m.Chapters = append(m.Chapters, extract.Chapter{Start: chapter.At(), Title: line(string(chapter.Title))})
	}
	m.Track = Track{Kind: TrackManual, Language: video.Track.Language}
	if video.Track.Automatic {
		m.Track.Kind = TrackAutomatic
	}
	m.Language = video.Track.Language
	m.Truncated = m.Truncated || video.Truncated
	switch {
	case err != nil:
		return err
	case len(bytes.TrimSpace(video.Captions)) == 0: // the site's answer to clients that it does not trust
		return failed(failure.CaptionsBlocked, nil, "The video has captions, but its site does not hand them out")
	}
	return s.parse(m, video.Captions, true)
}

// videoError returns the *Error for an error of the program, and the cause of a cancelled context unchanged.
func videoError(err error) error {
	var e *ytdlp.Error
	if !errors.As(err, &e) {
		return err // may be nil
	}
	out := outage(failed(e.Code, err, "%s", e.Detail))
	out.Retryable = out.Retryable || e.Local
	return out
}
