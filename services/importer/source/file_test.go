package source_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/source"
)

// drawer holds files.
type drawer map[[sha256.Size]byte][]byte

var errJammed = errors.New("jammed")

func (d drawer) Get(_ context.Context, digest [sha256.Size]byte) ([]byte, error) {
	if len(d) == 0 {
		return nil, errJammed
	}
	content, ok := d[digest]
	if !ok {
		return nil, fmt.Errorf("%w: %x", source.ErrNoFile, digest)
	}
	return content, nil
}

// put takes a file in and returns its URL.
func (d drawer) put(name, content string) string {
	file := contracts.NewFile(name, []byte(content))
	d[file.Digest] = []byte(content)
	return file.URL()
}

// What is handed in is read as what comes from an address.
func TestFilesThatWereHandedIn(t *testing.T) {
	t.Parallel()
	files := drawer{}
	s := sources(t, source.Config{Files: files})
	page := `<html lang=en><script type="application/ld+json">{"@type":"Recipe","name":"Toast","recipeIngredient":["1 slice bread"],` +
		`"recipeInstructions":["Toast the bread for two minutes."]}</script>`
	ids := map[string]bool{}
	for _, tc := range []struct{ name, content, kind, title string }{
		{"tomato-soup.en.vtt", captionFile, contracts.SourceCaptions, "tomato soup"},
		{"pea-soup.vtt", captionFile, contracts.SourceCaptions, "pea soup"},
		{"", captionFile, contracts.SourceCaptions, ""},
		{"notes", strings.Repeat("Chop an onion. ", 9), contracts.SourceCaptions, "notes"},
		{"saved.html", page, contracts.SourceWeb, "Toast"},
		{"lemon-cake.jpg", "\xff\xd8\xff", contracts.SourcePhoto, "lemon cake"}, // nothing can be read in it: a title in a photo comes first
	} {
		request := source.Request{URL: files.put(tc.name, tc.content), Type: source.KindOf(tc.name, []byte(tc.content))}
		m, err := s.Fetch(t.Context(), request, nil)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		check.That(t, m.Type == tc.kind && m.Title == tc.title && m.URL == request.URL,
			"%s is %s with the title %q at %s", tc.name, m.Type, m.Title, m.URL)
		id, err := s.Identify(t.Context(), request)
		check.That(t, err == nil && id == m.ID && !ids[id], "%s: the identity is %s, %v; want one of its own", tc.name, id, err)
		ids[m.ID] = true
	}
}

func TestFilesThatAreNotThere(t *testing.T) {
	t.Parallel()
	files := drawer{}
	url := files.put("a.vtt", captionFile)
	_, err := sources(t, source.Config{}).Identify(t.Context(), source.Request{URL: url})
	wantError(t, err, contracts.CodeUnavailable, false, "Files are not taken here")
	_, err = sources(t, source.Config{Files: files}).Fetch(t.Context(), source.Request{URL: contracts.NewFile("b.vtt", nil).URL()}, nil)
	wantError(t, err, contracts.CodeUnavailable, false, "not kept any more")
	_, err = sources(t, source.Config{Files: drawer{}}).Fetch(t.Context(), source.Request{URL: url}, nil)
	e := wantError(t, err, contracts.CodeNetwork, true, "could not be read back")
	check.That(t, errors.Is(e, errJammed), "%v", e)
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, content, want string }{
		{"a.vtt", "WEBVTT", contracts.SourceCaptions},
		{"", "Mix.", contracts.SourceCaptions},
		{"", "\ufeff <!DOCTYPE HTML>", contracts.SourceWeb},
		{"a.HTM", "x", contracts.SourceWeb},
		{"a.vtt", "\x89PNG\r\n\x1a\n", contracts.SourcePhoto},
		{"a.vtt", "<html>", contracts.SourceCaptions},
		{"a.JPG", "no photo", contracts.SourcePhoto},
	} {
		got := source.KindOf(tc.name, []byte(tc.content))
		check.That(t, got == tc.want, "%s: %s, want %s", tc.name, got, tc.want)
	}
}

// The request names the language of a file that names none, or a wrong one. Each language is a source of its own.
func TestLanguageOfAFile(t *testing.T) {
	t.Parallel()
	files := drawer{}
	s := sources(t, source.Config{Files: files})
	url := files.put("a.vtt", captionFile)
	ids := map[string]string{}
	for language, want := range map[string]string{"": "en", "de": "de", "PT-br": "pt-BR", "iw": "he"} {
		m := check.Must(s.Fetch(t.Context(), source.Request{Language: language, URL: url}, nil))(t)
		check.That(t, m.Language == want && ids[m.ID] == "",
			"%q: language %q, and the identity %s is that of %q", language, m.Language, m.ID, ids[m.ID])
		ids[m.ID] = "language " + language
	}
	for _, bad := range []string{"klingon", "x_y_z", "../..", "und", strings.Repeat("e", 300)} {
		_, err := s.Identify(t.Context(), source.Request{Language: bad, URL: url})
		wantError(t, err, contracts.CodeUnavailable, false, "is not known: want a tag such as en or pt-BR")
	}
}
