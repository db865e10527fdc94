package source_test

import (
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/source"
)

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
