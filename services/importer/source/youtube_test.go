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

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/source/sourcetest"
)

// cues makes a caption file of sentences, one every five seconds.
func cues(sentences ...string) string {
	var out strings.Builder
	out.WriteString("WEBVTT\nKind: captions\n\n")
	for i, sentence := range sentences {
		at := time.Duration(i) * 5 * time.Second
		out.WriteString(stamp(at) + " --> " + stamp(at+4*time.Second) + "\n" + sentence + "\n\n")
	}
	return out.String()
}

func stamp(d time.Duration) string { return time.Time{}.Add(d).Format("15:04:05.000") }

// rolling is a file of automatic captions: each line is in three cues.
const rolling = `WEBVTT
Kind: captions
Language: en

00:00:00.000 --> 00:00:02.000 align:start position:0%
 
add<00:00:00.500><c> two</c><00:00:01.000><c> cups</c><00:00:01.500><c> of</c><00:00:01.700><c> flour</c>

00:00:02.000 --> 00:00:02.010 align:start position:0%
add two cups of flour
 

00:00:02.010 --> 00:00:05.000 align:start position:0%
add two cups of flour
and<00:00:02.500><c> bake</c><00:00:03.000><c> for</c><00:00:03.500><c> thirty</c><00:00:04.000><c> minutes</c><00:00:04.500><c> or</c><00:00:04.700><c> longer</c>

00:00:05.000 --> 00:00:05.010 align:start position:0%
and bake for thirty minutes or longer
 

`

var (
	english = cues("Sift two cups of flour into a bowl.", "Stir in a cup of milk until it is smooth.")
	german  = cues("Zwei Tassen Mehl in eine Schüssel sieben.", "Eine Tasse Milch einrühren, bis alles glatt ist.")
	hebrew  = cues("מנפים שתי כוסות קמח לתוך קערה.", "מערבבים פנימה כוס חלב עד שהתערובת חלקה.")
)

// tube starts a YouTube and sources that fetch from it.
func tube(t *testing.T, videos map[string]sourcetest.Video, change ...func(*source.Config)) (*sourcetest.YouTube, *source.Sources, string) {
	t.Helper()
	testbed.YtDlp.Find(t)
	y := sourcetest.StartYouTube(t, videos)
	config := source.Config{
		TempDir: t.TempDir(), YouTube: &source.YouTube{CAFile: y.CAFile, Proxy: y.Proxy, SocketTimeout: 20 * time.Second},
	}
	for _, f := range change {
		f(&config)
	}
	t.Cleanup(func() { wantEmpty(t, config.TempDir) })
	return y, sources(t, config), config.TempDir
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check.That(t, err == nil && len(entries) == 0, "temporary files %v, error %v: want none", entries, err)
	left := sourcetest.AtWork(dir)
	check.That(t, len(left) == 0, "processes are left at work: %v", left)
}

func watch(id string) source.Request {
	return source.Request{JobID: "../../job;rm -rf *", URL: "https://youtu.be/" + id}
}

func TestYouTubeCaptions(t *testing.T) {
	t.Parallel()
	manual := func(language, body string) sourcetest.Track { return sourcetest.Track{Language: language, Body: body} }
	automatic := func(language, body string) sourcetest.Track {
		return sourcetest.Track{Language: language, Body: body, Automatic: true}
	}
	wrong := sourcetest.Track{Language: "xx", Status: http.StatusInternalServerError}
	tests := []struct {
		id, name string
		tracks   []sourcetest.Track
		want     source.Track
		words    string
	}{
		{"heard000000", "heard, not translated, each word once", []sourcetest.Track{automatic("de", rolling)}, source.Track{Kind: "automatic", Language: "de"}, "[0.00s] add two cups of flour\n[2.01s] and bake for thirty minutes or longer\n"},
		{"spoken00000", "a person's in the spoken language", []sourcetest.Track{manual("en", english), manual("de", german), automatic("de", rolling)}, source.Track{Kind: "manual", Language: "de"}, "Zwei Tassen Mehl"},
		{"-_broken-_x", "any language, by its name; one that is broken is not asked for", []sourcetest.Track{manual("iw", hebrew), wrong}, source.Track{Kind: "manual", Language: "he"}, "שתי כוסות קמח"},
	}
	videos := map[string]sourcetest.Video{}
	for _, test := range tests {
		videos[test.id] = sourcetest.Video{Title: "Lemon  cake", Author: "A Cook", Tracks: test.tracks}
	}
	y, s, _ := tube(t, videos)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := check.Must(s.Fetch(t.Context(), watch(test.id), nil))(t)
			var said strings.Builder
			check.OK(t, m.Transcript.WriteText(&said))
			check.That(t, m.Track == test.want && m.Language == test.want.Language && strings.Contains(said.String(), test.words),
				"track %+v, language %q, said:\n%s\nwant %+v and %q", m.Track, m.Language, said.String(), test.want, test.words)
			check.That(t, m.Title == "Lemon cake" && m.Author == "A Cook" && m.ID == "youtube:"+test.id,
				"title %q, author %q, id %q: want those of the video", m.Title, m.Author, m.ID)
			check.Equal(t, y.Fetches(test.id), 1, "requests for captions")
		})
	}
}

func TestYouTubeDescriptionAndChapters(t *testing.T) {
	t.Parallel()
	const description = "Ingredients:\n2 cups flour\n1 cup milk\n\n0:00 Intro\n1:00 Batter\n2:30 Bake\n"
	_, s, _ := tube(t, map[string]sourcetest.Video{"chapters000": {
		Title: "Lemon cake", Description: description, Tracks: []sourcetest.Track{{Language: "en", Body: english}},
	}})
	var shares []float64
	m := check.Must(s.Fetch(t.Context(), watch("chapters000"), func(share float64) { shares = append(shares, share) }))(t)
	want := []extract.Chapter{{Title: "Intro"}, {Start: time.Minute, Title: "Batter"}, {Start: 150 * time.Second, Title: "Bake"}}
	check.Equal(t, m.Chapters, want)
	if strings.TrimSpace(m.Description) != strings.TrimSpace(description) || m.Duration != 5*time.Minute || !strings.Contains(m.Version, "yt-dlp/20") {
		t.Errorf("description %q, duration %s, version %q", m.Description, m.Duration, m.Version)
	}
	check.Equal(t, shares, []float64{0.5, 0.9, 1})
}

func TestYouTubeErrors(t *testing.T) {
	t.Parallel()
	one := func(track sourcetest.Track) sourcetest.Video {
		track.Language = "en"
		return sourcetest.Video{Title: "Cake", Tracks: []sourcetest.Track{track}}
	}
	const gone = "Video unavailable or private"
	tests := []struct {
		name    string
		video   sourcetest.Video
		code    contracts.ImportCode
		again   bool
		message string
		fetches int
	}{
		{"gone", sourcetest.Video{Reason: sourcetest.Gone}, failure.Unavailable, false, gone, 0},
		{"bot check", sourcetest.Video{Reason: sourcetest.BotCheck}, failure.BotCheck, true, "not a bot", 0},
		{"live", sourcetest.Video{Title: "Cake", Live: true}, failure.Unavailable, false, "it is live", 0},
		{"no captions", sourcetest.Video{Title: "Cake"}, failure.NoCaptions, false, "No transcript available - this video may not have captions enabled", 0},
		{"page limited", sourcetest.Video{Status: http.StatusTooManyRequests}, failure.RateLimited, true, "limits how often", 0},
		{"page broken", sourcetest.Video{Status: http.StatusBadGateway}, failure.Network, true, "cannot be reached", 0},
		{"captions not there", one(sourcetest.Track{Status: http.StatusNotFound}), failure.CaptionsBlocked, false, "does not hand them out", 1},
		{"captions forbidden", one(sourcetest.Track{Status: http.StatusForbidden}), failure.CaptionsBlocked, false, "does not hand them out", 1},
		{"captions limited", one(sourcetest.Track{Status: http.StatusTooManyRequests}), failure.RateLimited, true, "limits how often", 1},
		{"captions broken", one(sourcetest.Track{Status: http.StatusInternalServerError}), failure.Network, true, "cannot be reached", 1},
		{"captions empty", one(sourcetest.Track{Body: ""}), failure.CaptionsBlocked, false, "does not hand them out", 1},
		{"captions too large", one(sourcetest.Track{Body: english + strings.Repeat("\n", 2<<20)}), failure.BadCaptions, false, "larger than is read", 1},
	}
	id := func(i int) string { return fmt.Sprintf("error_%05d", i) }
	videos := map[string]sourcetest.Video{}
	for i, test := range tests {
		videos[id(i)] = test.video
	}
	y, s, _ := tube(t, videos, func(c *source.Config) { c.MaxBytes = 1 << 20 })
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := s.Fetch(t.Context(), watch(id(i)), nil)
			wantError(t, err, test.code, test.again, test.message)
			check.Equal(t, y.Fetches(id(i)), test.fetches, "requests for captions")
		})
	}
}

// The captions of a video are read as any: what has no times is none. The program is not the real one, which takes long to start.
func TestYouTubeCaptionsThatAreNone(t *testing.T) {
	t.Parallel()
	const script = `#!/bin/sh
case "$*" in
*--version*) echo 2026.08.19 ;;
*--load-info-json*) cp "${0%/*}/body" sub.en.vtt ;;
*) echo '{"id":"aaaaaaaaaaa","formats":[{}],"subtitles":{"en":[{"ext":"vtt","url":"https://www.youtube.com/api/timedtext"}]}}' ;;
esac
`
	for _, test := range []struct {
		body    string
		code    contracts.ImportCode
		message string
	}{
		{"<!DOCTYPE html><html>", failure.BadCaptions, "an HTML page"},
		{"Sift two cups of flour into a bowl and then stir in the milk.", failure.BadCaptions, "captions cannot be read"},
		{cues("Hi."), failure.TooShort, "Transcript is too short (3 characters). Recipe videos typically have longer transcripts."},
	} {
		dir := t.TempDir()
		testbed.WriteProgram(t, filepath.Join(dir, "yt-dlp"), script)
		check.OK(t, os.WriteFile(filepath.Join(dir, "body"), []byte(test.body), 0o600))
		s := sources(t, source.Config{TempDir: t.TempDir(), YouTube: &source.YouTube{Program: filepath.Join(dir, "yt-dlp")}})
		_, err := s.Fetch(t.Context(), watch("aaaaaaaaaaa"), nil)
		wantError(t, err, test.code, false, test.message)
	}
}

// A description that is a whole recipe is imported without captions, marked; one that is not, is refused as before.
func TestVideoWithoutCaptions(t *testing.T) {
	t.Parallel()
	blocked := sourcetest.Track{Language: "de", Status: http.StatusForbidden}
	tests := []struct {
		description string
		tracks      []sourcetest.Track
		code        contracts.ImportCode
	}{
		{description: "Ingredients:\n2 cups flour\n3 eggs\n\nMethod:\n1. Mix.\n2. Bake for 30 minutes.\n\nFollow me on Instagram!"},
		{description: "Zutaten\n200 g Mehl\n3 Eier\n\nZubereitung\nAlles mischen.\nBei 180 Grad backen.", tracks: []sourcetest.Track{blocked}},
		{description: "材料\n卵 2個\n牛乳 200ml\n\n作り方\n1. 混ぜる。\n2. 焼く。"},
		{description: "My favourite cake. Subscribe for a new recipe each week!", code: failure.NoCaptions},
		{description: "Ingredients:\n2 cups flour\n3 eggs", code: failure.NoCaptions},
	}
	id := func(i int) string { return fmt.Sprintf("silent_%04d", i) }
	videos := map[string]sourcetest.Video{}
	for i, test := range tests {
		videos[id(i)] = sourcetest.Video{Title: "Cake", Description: test.description, Tracks: test.tracks}
	}
	_, s, _ := tube(t, videos)
	for i, test := range tests {
		m, err := s.Fetch(t.Context(), watch(id(i)), nil)
		if test.code != "" {
			wantError(t, err, test.code, false, "")
			continue
		}
		check.Require(t, err == nil && len(m.Warnings) == 1 && m.Warnings[0].Code == source.WarnNoCaptions, "material %+v, error %v", m, err)
		r, err := rules.New().Extract(t.Context(), extract.Input{Title: m.Title, Description: m.Description, Untimed: !m.Transcript.Timed})
		check.That(t, err == nil && r.Title == "Cake" && len(r.Ingredients) == 2 && len(r.Steps) == 2, "recipe %+v, error %v", r, err)
	}
}

func TestYouTubeStalls(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		video   sourcetest.Video
		youTube source.YouTube
		message string
	}{
		"the page, longer than the socket waits": {sourcetest.Video{Stall: true}, source.YouTube{SocketTimeout: 500 * time.Millisecond}, "yt-dlp failed: the site does not answer in time"},
		"the captions, longer than the socket waits": {
			sourcetest.Video{Tracks: []sourcetest.Track{{Language: "en", Stall: true}}}, source.YouTube{SocketTimeout: 500 * time.Millisecond}, "yt-dlp failed: the site does not answer in time",
		},
		"the page, longer than a video may take": {sourcetest.Video{Stall: true}, source.YouTube{Timeout: 2 * time.Second}, "yt-dlp timeout after 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s, _ := tube(t, map[string]sourcetest.Video{"aaaaaaaaaaa": test.video}, func(c *source.Config) {
				test.youTube.CAFile, test.youTube.Proxy = c.YouTube.CAFile, c.YouTube.Proxy
				c.YouTube = &test.youTube
			})
			_, err := s.Fetch(t.Context(), watch("aaaaaaaaaaa"), nil)
			wantError(t, err, failure.Timeout, true, test.message)
		})
	}
}

func TestYouTubeIsLeftOut(t *testing.T) {
	t.Parallel()
	_, err := sources(t, source.Config{}).Fetch(t.Context(), watch("aaaaaaaaaaa"), nil)
	wantError(t, err, failure.Unavailable, false, "not turned on")
}

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
		{"tomato-soup.en.vtt", captionFile, source.TypeCaptions, "tomato soup"},
		{"pea-soup.vtt", captionFile, source.TypeCaptions, "pea soup"},
		{"", captionFile, source.TypeCaptions, ""},
		{"notes", strings.Repeat("Chop an onion. ", 9), source.TypeCaptions, "notes"},
		{"saved.html", page, source.TypeWeb, "Toast"},
		{"lemon-cake.jpg", "\xff\xd8\xff", source.TypePhoto, "lemon cake"}, // nothing can be read in it: a title in a photo comes first
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
		check.That(t, err == nil && id == m.ID && !ids[id], "%s: the identity is %s, %v; want another", tc.name, id, err)
		ids[m.ID] = true
	}
}

func TestFilesThatAreNotThere(t *testing.T) {
	t.Parallel()
	files := drawer{}
	url := files.put("a.vtt", captionFile)
	_, err := sources(t, source.Config{}).Identify(t.Context(), source.Request{URL: url})
	wantError(t, err, failure.Unavailable, false, "Files are not taken here")
	_, err = sources(t, source.Config{Files: files}).Fetch(t.Context(), source.Request{URL: contracts.NewFile("b.vtt", nil).URL()}, nil)
	wantError(t, err, failure.Unavailable, false, "not kept any more")
	_, err = sources(t, source.Config{Files: drawer{}}).Fetch(t.Context(), source.Request{URL: url}, nil)
	e := wantError(t, err, failure.Network, true, "could not be read back")
	check.That(t, errors.Is(e, errJammed), "%v", e)
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, content, want string }{
		{"a.vtt", "WEBVTT", source.TypeCaptions},
		{"", "Mix.", source.TypeCaptions},
		{"", "\ufeff <!DOCTYPE HTML>", source.TypeWeb},
		{"a.HTM", "x", source.TypeWeb},
		{"a.vtt", "\x89PNG\r\n\x1a\n", source.TypePhoto},
		{"a.vtt", "<html>", source.TypeCaptions},
		{"a.JPG", "no photo", source.TypePhoto},
	} {
		check.Equal(t, source.KindOf(tc.name, []byte(tc.content)), tc.want, tc.name)
	}
}

// The request names the language of a file that names none, or a wrong one. Each language is its own source.
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
		wantError(t, err, failure.Unavailable, false, "is not known: want a tag such as en or pt-BR")
	}
}

func TestIdentifyYouTube(t *testing.T) {
	t.Parallel()
	s := sources(t, source.Config{})
	for _, address := range []string{
		"https://www.youtube.com/watch?v=dQw4w9WgXcQ",
		"http://youtube.com/watch?v=dQw4w9WgXcQ&list=PL123&index=2&t=30s",
		"https://youtu.be/dQw4w9WgXcQ?si=abc",
		"https://www.youtube.com/shorts/dQw4w9WgXcQ",
		"https://www.youtube-nocookie.com/embed/dQw4w9WgXcQ",
		"https://www.youtube.com/watch/dQw4w9WgXcQ",
		"https://youtu.be/dQw4w9WgXcQ&feature=share",
		"https://youtu.be/watch?v=dQw4w9WgXcQ",
		"https://music.youtube.com/watch?v=dQw4w9WgXcQ&si=Zk9LqD3oR3c9Xy_8",
		"https://www.youtube.com/watch?feature=share&amp;v=dQw4w9WgXcQ&amp;t=30",
		"https://www.youtube.com/watch?v=dQw4w9WgXcQ?t=30",
		"https://www.youtube.com./watch?list=videoseries&v=dQw4w9WgXcQ#t=5",
		"youtube.com/watch?v=dQw4w9WgXcQ",
		"youtu.be/dQw4w9WgXcQ",
	} {
		for _, kind := range []string{"", source.TypeYouTube} {
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
		"file:///etc/passwd":                   "http:// or https://",
		"http:example.com":                     "http:// or https://",
		"dQw4w9WgXcQ":                          "http:// or https://",
		"http:///en.vtt":                       "host",
		"http://exa mple.com/":                 "space",
		"http://example.com/\nHost: x":         "control character",
		"http://user:secret@example.com/a.vtt": "user name",
		"http://*.example.com/":                "host",
		"http://example.com:65536/":            "host",
		"http://example.com/%zz":               "not a URL",
		"http://example.com/" + strings.Repeat("a", 2048):   "2048",
		"https://www.youtube.com/watch?v=--exec":            "11 characters",
		"https://www.youtube.com/watch?v=../../etc/p":       "11 characters",
		"https://www.youtube.com/watch?v=dQw4w9WgXcQQ":      "11 characters",
		"https://www.youtube.com/watch?v=dQw4w9WgX%00c":     "11 characters",
		"https://www.youtube.com/watch?v=dQw4w9Wg*>Q":       "11 characters",
		"https://www.youtube.com/@cook":                     "11 characters",
		"https://www.youtube.com/playlist?list=dQw4w9WgXcQ": "11 characters",
		"https://youtu.be/":                                 "11 characters",
		"https://www.youtube.com/embed/videoseries?list=PL": "11 characters",
		"ada@example.com/soup":                              "http:// or https://",
		"user:secret@example.com/a.vtt":                     "http:// or https://",
		"localhost/soup":                                    "http:// or https://",
		"example.com/my soup":                               "space",
	} {
		_, err := s.Identify(t.Context(), source.Request{URL: address})
		e := wantError(t, err, failure.Unavailable, false, why)
		check.That(t, !strings.Contains(e.Message, "secret"), "%s: the message repeats a password: %s", address, e.Message)
	}
	for _, address := range []string{"https://youtube.com.evil.example/watch?v=dQw4w9WgXcQ", "https://evil.example/youtu.be/dQw4w9WgXcQ"} {
		_, err := s.Identify(t.Context(), source.Request{Type: source.TypeYouTube, URL: address})
		wantError(t, err, failure.Unavailable, false, "does not name a YouTube video")
	}
	_, err := s.Identify(t.Context(), source.Request{Type: "podcast", URL: "https://example.com/"})
	wantError(t, err, failure.Unavailable, false, `"podcast" is not known`)
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
		"example.com/cake?page=2", "Example.com./cake?page=2#:~:text=flour", "//example.com:443/cake?page=2",
		"https://example.com/cake?srsltid=AfmBOoq6uqN4&page=2", "https://example.com/cake?mc_cid=1&mc_eid=2&page=2",
		"https://example.com/cake?page=2&msclkid=1&gad_source=1&gbraid=2&wbraid=3&gclid=4", "https://example.com/cake?igsh=a%3D%3D&page=2",
		"https://example.com/cake?page=2&si=Zk9LqD3oR3c9Xy_8", "https://example.com/cake?page=2&_ga=2.1.2-3&_gl=1*a", "https://example.com/cake?UTM_ID=1&page=2&",
		"https://example.com/cake?page=2&ttclid=1&yclid=2&_hsenc=3&mkt_tok=4&epik=5",
	} {
		check.Equal(t, identify("", same), page, same)
	}
	check.Equal(t, identify("", "BÜCHER.example/x"), identify("", "https://xn--bcher-kva.example/x"), "a name in Unicode")
	seen := map[string]string{page: "the page"}
	for _, other := range []string{
		"https://example.com/cake?page=3", "https://example.com/Cake?page=2", "http://example.com/cake?page=2",
		"https://example.com:8443/cake?page=2", "https://example.com/cake?page=2&x=1",
		"https://example.com/cake?page=2&si=2", "https://example.com/cake?page=2&id=1", "https://example.com/cake?page=2&s=x",
		"https://example.com/cake?page=2&ref=soup", "https://example.com/cake?page=2&source=2", "https://example.com/cake?page=2&utm=1",
		"https://example.com/cake?page=2&gclids=1", "https://example.com/cake?page=2&mc=1", "https://example.com/cake?page=2&igsh_x=1",
		"https://example.com/cake?page=2&recipe=igsh",
	} {
		id := identify("", other)
		before, ok := seen[id]
		check.That(t, !ok, "%s has the id of %s", other, before)
		seen[id] = other
	}
	for address, kind := range map[string]string{
		"https://example.com/a.vtt": source.TypeCaptions, "https://example.com/A.SRT": source.TypeCaptions,
		"https://example.com/cake": source.TypeWeb, "https://example.com/cake.JPG": source.TypePhoto,
		"https://bücher.example/kuchen": source.TypeWeb, "bücher.example/kuchen.srt": source.TypeCaptions,
		"пример.рф": source.TypeWeb,
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
	testbed.Tesseract.Find(t)
	testbed.HEIF.Find(t)
	server := site(t, map[string]http.HandlerFunc{
		"/recipe.heic": text("image/heic", string(photoAs(t, "heic"))),
		"/recipe.jpg":  text("application/octet-stream", string(photo(t))), "/recipe": text("image/png", string(photo(t))),
		"/recipe.webp": text("image/webp", string(photoAs(t, "webp"))),
	})
	dir := t.TempDir()
	s := sources(t, source.Config{TempDir: dir, Photo: source.Photo{Program: "tesseract"}})
	for _, request := range []source.Request{
		{JobID: "job-1", URL: server.URL + "/recipe.jpg"},
		{Type: source.TypePhoto, URL: server.URL + "/recipe"},
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
		check.That(t, same && m.ImageType == "image/"+ending && m.Type == source.TypePhoto && !m.Transcript.Timed,
			"type %s, image %s of %d bytes, timed %t", m.Type, m.ImageType, len(m.Image), m.Transcript.Timed)
		check.Equal(t, m.Title, "Lemon cake", "title")
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
	check.ErrorContains(t, check.Err(source.New(source.Config{Photo: source.Photo{Program: "tesseract"}})), "install tesseract")
	check.ErrorContains(t, check.Err(source.New(source.Config{YouTube: &source.YouTube{}})), "install yt-dlp")
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
		"/page.jpg": "No recipe found", "/empty.jpg": "found text/plain", "/bomb.png": "100000 x 100000 pixels", "/cmyk.jpg": "4000 x 4000 pixels: more than 12500000", "/movie.heic": "no photo", "/large.heic": "8064 x 6048 pixels", "/large.jpg": "larger than 1000 bytes",
	} {
		_, err := s.Fetch(t.Context(), source.Request{URL: server.URL + path}, nil)
		wantError(t, err, failure.ExtractionFailed, false, message)
	}
	_, err := s.Fetch(t.Context(), source.Request{URL: server.URL + "/no.png"}, nil)
	wantError(t, err, failure.Unavailable, false, "HTTP 404")
	_, err = sources(t, source.Config{Timeout: 500 * time.Millisecond}).Fetch(t.Context(), source.Request{URL: server.URL + "/slow.png"}, nil)
	wantError(t, err, failure.Timeout, true, "The photo")
}

// A reader that hangs is killed, and one that fails leaves the photo to others.
func TestPhotoReaderThatFails(t *testing.T) {
	t.Parallel()
	server := site(t, map[string]http.HandlerFunc{"/recipe.png": text("image/png", string(photo(t)))})
	fetch := func(script string, timeout time.Duration) (*source.Material, error) {
		path := filepath.Join(t.TempDir(), "tesseract")
		testbed.WriteProgram(t, path, "#!/bin/sh\n[ $1 = --list-langs ] && echo 'List (1):\neng' && exit\n"+script+"\n")
		dir := t.TempDir()
		s := sources(t, source.Config{TempDir: dir, Photo: source.Photo{Program: path, Timeout: timeout}})
		defer wantEmpty(t, dir)
		return s.Fetch(t.Context(), source.Request{URL: server.URL + "/recipe.png"}, nil)
	}
	_, err := fetch("sleep 1000 & sleep 1000", 2*time.Second)
	wantError(t, err, failure.Timeout, true, "within 2s")
	for _, script := range []string{"echo broken >&2; exit 1", "exit 0", "yes"} {
		m, err := fetch(script, time.Minute)
		check.That(t, err == nil && len(m.Image) != 0 && len(m.Transcript.Segments) == 0, "%s: error %v: want the image alone", script, err)
	}
}
