package source_test

import (
	"bytes"
	"encoding/binary"
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
