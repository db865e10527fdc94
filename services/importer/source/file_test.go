package source_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
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

// A file that is handed in is read as one that comes from an address.
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
		check.Same(t, tc.name, source.KindOf(tc.name, []byte(tc.content)), tc.want)
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

func TestIdentifyYouTube(t *testing.T) {
	t.Parallel()
	s := sources(t, source.Config{})
	for _, address := range []string{
		"https://www.youtube.com/watch?v=dQw4w9WgXcQ",
		"http://youtube.com/watch?v=dQw4w9WgXcQ&list=PL123&index=2&t=30s",
		"https://m.youtube.com/watch?app=desktop&v=dQw4w9WgXcQ",
		"https://youtu.be/dQw4w9WgXcQ?si=abc",
		"https://YOUTU.BE:443/dQw4w9WgXcQ/",
		"https://www.youtube.com/shorts/dQw4w9WgXcQ",
		"https://www.youtube.com/live/dQw4w9WgXcQ?feature=share",
		"https://www.youtube-nocookie.com/embed/dQw4w9WgXcQ",
	} {
		for _, kind := range []string{"", contracts.SourceYouTube} {
			id, err := s.Identify(t.Context(), source.Request{Type: kind, URL: address})
			check.That(t, err == nil && id == "youtube:dQw4w9WgXcQ", "%s as %q: id %q, error %v: want the video", address, kind, id, err)
		}
	}
}

func TestIdentifyRefuses(t *testing.T) {
	t.Parallel()
	s := sources(t, source.Config{})
	for address, why := range map[string]string{
		"":                                     "http:// or https://",
		"--exec=id":                            "http:// or https://",
		"-":                                    "http:// or https://",
		"file:///etc/passwd":                   "http:// or https://",
		"ftp://example.com/a.vtt":              "http:// or https://",
		"javascript:alert(1)":                  "http:// or https://",
		"data:text/vtt,WEBVTT":                 "http:// or https://",
		"http:example.com":                     "http:// or https://",
		"dQw4w9WgXcQ":                          "http:// or https://",
		"http:///en.vtt":                       "host",
		"http://exa mple.com/":                 "space",
		"http://example.com/\nHost: x":         "control character",
		"http://example.com/\x00":              "control character",
		"http://user:secret@example.com/a.vtt": "user name",
		"http://*.example.com/":                "host",
		"http://exa>mple.com/":                 "host",
		"http://example.com:65536/":            "host",
		"http://example.com/%zz":               "not a URL",
		"http://example.com/" + strings.Repeat("a", 2048):   "2048",
		"https://www.youtube.com/watch?v=--exec":            "11 characters",
		"https://www.youtube.com/watch?v=../../etc/p":       "11 characters",
		"https://www.youtube.com/watch?v=dQw4w9WgXc":        "11 characters",
		"https://www.youtube.com/watch?v=dQw4w9WgXcQQ":      "11 characters",
		"https://www.youtube.com/watch?v=dQw4w9WgX%00c":     "11 characters",
		"https://www.youtube.com/watch?v=dQw4w9WgX%20Q":     "11 characters",
		"https://www.youtube.com/watch?v=dQw4w9Wg*>Q":       "11 characters",
		"https://www.youtube.com/@cook":                     "11 characters",
		"https://www.youtube.com/playlist?list=dQw4w9WgXcQ": "11 characters",
		"https://youtu.be/":                                 "11 characters",
	} {
		_, err := s.Identify(t.Context(), source.Request{URL: address})
		e := wantError(t, err, contracts.CodeUnavailable, false, why)
		check.That(t, !strings.Contains(e.Message, "secret"), "%s: the message repeats a password: %s", address, e.Message)
	}
	for _, address := range []string{"https://youtube.com.evil.example/watch?v=dQw4w9WgXcQ", "https://evil.example/youtu.be/dQw4w9WgXcQ"} {
		_, err := s.Identify(t.Context(), source.Request{Type: contracts.SourceYouTube, URL: address})
		wantError(t, err, contracts.CodeUnavailable, false, "does not name a YouTube video")
	}
	_, err := s.Identify(t.Context(), source.Request{Type: "podcast", URL: "https://example.com/"})
	wantError(t, err, contracts.CodeUnavailable, false, `"podcast" is not known`)
}

func TestIdentifyIsCanonical(t *testing.T) {
	t.Parallel()
	s := sources(t, source.Config{})
	identify := func(kind, address string) string {
		t.Helper()
		return check.Must(s.Identify(t.Context(), source.Request{Type: kind, URL: address}))(t)
	}
	page := identify("", "https://example.com/cake?page=2")
	for _, same := range []string{
		"HTTPS://Example.COM:443/cake?page=2#method", "https://example.com./cake?utm_source=x&page=2&fbclid=1",
	} {
		check.Same(t, same, identify("", same), page)
	}
	seen := map[string]string{page: "the page"}
	for _, other := range []string{
		"https://example.com/cake?page=3", "https://example.com/Cake?page=2", "http://example.com/cake?page=2",
		"https://example.com:8443/cake?page=2", "https://example.com/cake?page=2&x=1",
	} {
		id := identify("", other)
		before, ok := seen[id]
		check.That(t, !ok, "%s has the id of %s", other, before)
		seen[id] = other
	}
	for address, kind := range map[string]string{
		"https://example.com/a.vtt": contracts.SourceCaptions, "https://example.com/A.SRT": contracts.SourceCaptions,
		"https://example.com/cake": contracts.SourceWeb, "https://example.com/cake.JPG": contracts.SourcePhoto,
		"https://bücher.example/kuchen": contracts.SourceWeb,
	} {
		id := identify("", address)
		check.That(t, strings.HasPrefix(id, kind+":"), "%s is %s: want a %s", address, id, kind)
	}
}

func photo(t *testing.T) []byte {
	t.Helper()
	return photoAs(t, "png")
}

func photoAs(t *testing.T, ending string) []byte {
	t.Helper()
	return check.Must(os.ReadFile("testdata/recipe." + ending))(t)
}

// A photo is read, passed on, and good enough for the rules.
func TestPhotoIsRead(t *testing.T) {
	t.Parallel()
	installed.Tesseract.Find(t)
	installed.HEIF.Find(t)
	server := site(t, map[string]http.HandlerFunc{
		"/recipe.heic": text("image/heic", string(photoAs(t, "heic"))),
		"/recipe.jpg":  text("application/octet-stream", string(photo(t))), "/recipe": text("image/png", string(photo(t))),
		"/recipe.webp": text("image/webp", string(photoAs(t, "webp"))),
	})
	dir := t.TempDir()
	s := sources(t, source.Config{TempDir: dir, Photo: source.Photo{Program: "tesseract"}})
	for _, request := range []source.Request{
		{JobID: "job-1", URL: server.URL + "/recipe.jpg"},
		{Type: contracts.SourcePhoto, URL: server.URL + "/recipe"},
		{URL: server.URL + "/recipe"},
		{URL: server.URL + "/recipe.webp"},
		{URL: server.URL + "/recipe.heic"},
	} {
		ending := strings.TrimPrefix(path.Ext(request.URL), ".")
		if ending != "webp" && ending != "heic" {
			ending = "png"
		}
		m := check.Must(s.Fetch(t.Context(), request, nil))(t)
		same := bytes.Equal(m.Image, photoAs(t, ending))
		if ending == "heic" { // which models do not read
			same, ending = bytes.HasPrefix(m.Image, []byte("\xff\xd8\xff")), "jpeg"
		}
		check.That(t, same && m.ImageType == "image/"+ending && m.Type == contracts.SourcePhoto && !m.Transcript.Timed,
			"type %s, image %s of %d bytes, timed %t", m.Type, m.ImageType, len(m.Image), m.Transcript.Timed)
		check.Same(t, "title", m.Title, "Lemon cake")
		var said strings.Builder
		if err := m.Transcript.WriteText(&said); err != nil || !strings.Contains(said.String(), "2 cups flour") {
			t.Errorf("transcript %q, error %v: want the text of the photo", said.String(), err)
		}
		r, err := rules.New().Extract(t.Context(), extract.Input{Title: "Lemon cake", Description: m.Description, Segments: m.Transcript.Segments, Untimed: true})
		check.That(t, err == nil && len(r.Ingredients) == 3 && len(r.Steps) >= 2 && r.Ingredients[0].Item == "flour",
			"recipe %+v, error %v: want three ingredients and two steps", r, err)
	}
	wantEmpty(t, dir)
}

// Where nothing reads photos, they are passed on to an extractor that can see.
func TestPhotoIsPassedOn(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	server := site(t, map[string]http.HandlerFunc{
		"/recipe.png": text("image/png", string(photo(t))), "/recipe.heic": text("image/heic", string(photoAs(t, "heic"))),
	})
	for _, ending := range []string{"png", "heic"} {
		m, err := sources(t, source.Config{}).Fetch(t.Context(), source.Request{URL: server.URL + "/recipe." + ending}, nil)
		check.That(t, err == nil && m.ImageType == "image/"+ending && bytes.Equal(m.Image, photoAs(t, ending)) && len(m.Transcript.Segments) == 0,
			"material %+v, error %v: want the image alone", m, err)
	}
	check.Contains(t, check.Err(source.New(source.Config{Photo: source.Photo{Program: "tesseract"}})), "install tesseract")
	check.Contains(t, check.Err(source.New(source.Config{YouTube: &source.YouTube{}})), "install yt-dlp")
	for _, languages := range []string{"eng --psm 0", "-l", "eng+", "../x"} {
		_, err := source.New(source.Config{Photo: source.Photo{Languages: languages}})
		check.That(t, err != nil && strings.Contains(err.Error(), "Languages"), "languages %q: error %v: want them refused", languages, err)
	}
}

// bomb is a PNG of a few bytes that says to be very large.
func bomb() []byte {
	head := make([]byte, 0, 17)
	head = append(head, "IHDR"...)
	head = binary.BigEndian.AppendUint32(head, 100_000)
	head = binary.BigEndian.AppendUint32(head, 100_000)
	head = append(head, 8, 2, 0, 0, 0)
	out := append([]byte("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13)
	return binary.BigEndian.AppendUint32(append(out, head...), crc32.ChecksumIEEE(head))
}

func TestPhotoErrors(t *testing.T) {
	t.Parallel()
	server := site(t, map[string]http.HandlerFunc{
		"/page.jpg": text("image/jpeg", "<!DOCTYPE html><html>"), "/empty.jpg": text("image/jpeg", ""), "/bomb.png": text("image/png", string(bomb())),
		"/large.heic": text("image/heic", "\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic\x00\x00\x00\x14ispe\x00\x00\x00\x00\x00\x00\x1f\x80\x00\x00\x17\xa0"),
		"/cmyk.jpg":   text("image/jpeg", "\xff\xd8\xff\xc0\x00\x14\x08\x0f\xa0\x0f\xa0\x04\x01\x11\x00\x02\x11\x00\x03\x11\x00\x04\x11\x00\xff\xda\x00\x0e"),
		"/movie.heic": text("image/heic", "\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00"), "/large.jpg": text("image/jpeg", "\xff\xd8\xff"+strings.Repeat("x", 2000)),
		"/slow.png": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	})
	s := sources(t, source.Config{MaxBytes: 1000})
	for path, message := range map[string]string{
		"/page.jpg": "found text/html", "/empty.jpg": "found text/plain", "/bomb.png": "100000 x 100000 pixels", "/cmyk.jpg": "4000 x 4000 pixels: more than 10000000", "/movie.heic": "no photo", "/large.heic": "8064 x 6048 pixels", "/large.jpg": "larger than 1000 bytes",
	} {
		_, err := s.Fetch(t.Context(), source.Request{URL: server.URL + path}, nil)
		wantError(t, err, contracts.CodeExtractionFailed, false, message)
	}
	_, err := s.Fetch(t.Context(), source.Request{URL: server.URL + "/no.png"}, nil)
	wantError(t, err, contracts.CodeUnavailable, false, "HTTP 404")
	_, err = sources(t, source.Config{Timeout: 500 * time.Millisecond}).Fetch(t.Context(), source.Request{URL: server.URL + "/slow.png"}, nil)
	wantError(t, err, contracts.CodeTimeout, true, "The photo")
}

// A reader that hangs is killed, and one that fails leaves the photo to others.
func TestPhotoReaderThatFails(t *testing.T) {
	t.Parallel()
	server := site(t, map[string]http.HandlerFunc{"/recipe.png": text("image/png", string(photo(t)))})
	fetch := func(script string, timeout time.Duration) (*source.Material, error) {
		path := filepath.Join(t.TempDir(), "tesseract")
		check.OK(t, os.WriteFile(path, []byte("#!/bin/sh\n[ $1 = --list-langs ] && echo 'List (1):\neng' && exit\n"+script+"\n"), 0o700))
		dir := t.TempDir()
		s := sources(t, source.Config{TempDir: dir, Photo: source.Photo{Program: path, Timeout: timeout}})
		defer wantEmpty(t, dir)
		return s.Fetch(t.Context(), source.Request{URL: server.URL + "/recipe.png"}, nil)
	}
	_, err := fetch("sleep 1000 & sleep 1000", 2*time.Second)
	wantError(t, err, contracts.CodeTimeout, true, "within 2s")
	for _, script := range []string{"echo broken >&2; exit 1", "exit 0", "yes"} {
		m, err := fetch(script, time.Minute)
		check.That(t, err == nil && len(m.Image) != 0 && len(m.Transcript.Segments) == 0, "%s: error %v: want the image alone", script, err)
	}
}
