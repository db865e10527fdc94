package source_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/source"
)

// A site sees the cookies that it has set in the same fetch: neither those of another fetch nor those of another site.
func TestCookiesLastForOneFetch(t *testing.T) {
	t.Parallel()
	var sets, others atomic.Int32
	other := site(t, map[string]http.HandlerFunc{"/cake": func(w http.ResponseWriter, r *http.Request) {
		if len(r.Cookies()) > 0 {
			others.Add(1)
		}
		text("text/html", recipePage)(w, r)
	}})
	handle := func(lead http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if cookie, err := r.Cookie("seen"); err == nil && cookie.Value == "1" {
				text("text/html", recipePage)(w, r)
				return
			}
			sets.Add(1)
			http.SetCookie(w, &http.Cookie{Name: "seen", Value: "1", Path: "/"})
			lead(w, r)
		}
	}
	here := site(t, map[string]http.HandlerFunc{
		"/redirect": handle(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/redirect?x=1", http.StatusFound) }),
		"/refresh":  handle(text("text/html", `<meta http-equiv=Refresh content="0; URL='/refresh?x=1'">`)),
		"/away": handle(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+"/cake", http.StatusFound)
		}),
		"/flood": func(w http.ResponseWriter, r *http.Request) {
			for n := range 1000 {
				w.Header().Add("Set-Cookie", fmt.Sprintf("c%d=1", n))
			}
			if len(r.Cookies()) == 0 {
				http.Redirect(w, r, "/flood?x=1", http.StatusFound)
				return
			}
			check.Equal(t, len(r.Cookies()), 200, "the cookies of a flood")
			text("text/html", recipePage)(w, r)
		},
	})
	s := sources(t, source.Config{})
	for _, path := range []string{"/redirect", "/refresh", "/away", "/flood"} {
		for n := range int32(2) {
			sets.Store(0)
			m, err := s.Fetch(t.Context(), source.Request{URL: here.URL + path}, nil)
			check.That(t, err == nil && m.Recipe != nil, "%s, fetch %d: %v", path, n, err)
			check.That(t, sets.Load() == 1 || path == "/flood", "%s, fetch %d: the cookie was set %d times, want once", path, n, sets.Load())
		}
	}
	check.Equal(t, others.Load(), 0, "cookies sent to another site")
}

// The setting names the importer to sites that refuse others, and a refusal says what a person can do.
func TestSitesThatRefusePrograms(t *testing.T) {
	t.Parallel()
	answer := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for n := 0; n+1 < len(header); n += 2 {
				w.Header().Set(header[n], header[n+1])
			}
			w.WriteHeader(status)
		}
	}
	server := site(t, map[string]http.HandlerFunc{
		"/cake": func(w http.ResponseWriter, r *http.Request) {
			if r.UserAgent() != "Mozilla/5.0 (X11; Linux x86_64)" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			text("text/html", recipePage)(w, r)
		},
		"/login": answer(401), "/cloudflare": answer(503, "Cf-Mitigated", "challenge"), "/limit": answer(429, "Cf-Mitigated", "challenge"),
		"/aws": answer(405, "X-Amzn-Waf-Action", "captcha"), "/siteground": answer(202, "Sg-Captcha", "challenge"), "/busy": answer(503),
	})
	m, err := sources(t, source.Config{UserAgent: "Mozilla/5.0 (X11; Linux x86_64)"}).Fetch(t.Context(), source.Request{URL: server.URL + "/cake"}, nil)
	check.That(t, err == nil && m.Recipe != nil, "%+v, %v", m, err)
	for path, want := range map[string]contracts.ImportCode{
		"/cake": failure.Private, "/login": failure.Private, "/cloudflare": failure.BotCheck, "/limit": failure.BotCheck,
		"/aws": failure.BotCheck, "/siteground": failure.BotCheck,
	} {
		_, err := sources(t, source.Config{}).Fetch(t.Context(), source.Request{URL: server.URL + path}, nil)
		e := wantError(t, err, want, false, "Open it in a browser, save it, and hand in the file")
		check.That(t, !e.Outage, "%s is an outage of its site: %+v", path, e)
	}
	_, err = sources(t, source.Config{}).Fetch(t.Context(), source.Request{URL: server.URL + "/busy"}, nil)
	wantError(t, err, failure.Network, true, "HTTP 503")
	_, err = source.New(source.Config{UserAgent: "a\r\nX: b"})
	check.ErrorContains(t, err, "Config.UserAgent", "control characters")
}

// Answers that are unusual, and readable, are read.
func TestUnusualAnswers(t *testing.T) {
	t.Parallel()
	refresh := func(content string) http.HandlerFunc {
		return text("text/html", `<head><title>Moved</title><meta http-equiv="refresh" content="`+content+`"></head><p>This page has moved.`)
	}
	server := site(t, map[string]http.HandlerFunc{
		"/203": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNonAuthoritativeInfo)
			_, err := io.WriteString(w, recipePage)
			check.OK(t, err)
		},
		"/cake": text("text/html", recipePage), "/quoted": refresh("0;URL='/cake'"), "/bare": refresh("3, cake"), "/slow": refresh(" 5.5 ; url = ./cake "),
		"/twice": refresh("0; url=/quoted"), "/File:cake.jpg": text("text/html", recipePage), "/torte.PNG": text("text/html", "<!-- x -->"+recipePage),
		"/gâteau.txt": text("text/html", recipePage),
		"/stays":      text("text/html", `<meta http-equiv=refresh content="0;url=/nothing">`+recipePage),
		"/loop":       refresh("0; url=/loop?x=1"), "/reload": refresh("300"), "/private": refresh("0; url=http://10.0.0.1/"),
	})
	s := sources(t, source.Config{})
	for _, path := range []string{
		"/203", "/quoted", "/bare", "/slow", "/twice", "/File:cake.jpg", "/torte.PNG", "/gâteau.txt", "/stays",
	} {
		m, err := s.Fetch(t.Context(), source.Request{URL: server.URL + path}, nil)
		check.That(t, err == nil && m.Recipe != nil && m.Recipe.Title == "Lemon cake" && m.Type == source.TypeWeb, "%s: %+v, %v", path, m, err)
	}
	for path, want := range map[string]string{"/loop": "No recipe found", "/reload": "No recipe found", "/private": "may not be fetched"} {
		_, err := s.Fetch(t.Context(), source.Request{URL: server.URL + path}, nil)
		check.ErrorContains(t, err, want)
	}
	_, err := s.Fetch(t.Context(), source.Request{Type: source.TypePhoto, URL: server.URL + "/File:cake.jpg"}, nil)
	check.ErrorContains(t, err, "holds no photo")
}

// A file of a kind that is not read is named, however it arrives, with what to hand in instead.
func TestFilesOfOtherKinds(t *testing.T) {
	t.Parallel()
	files := drawer{}
	s := sources(t, source.Config{Files: files})
	for name, file := range map[string]struct{ content, want string }{
		"soup.pdf":      {"%PDF-1.7\n%\xe2\xe3", "a PDF, which is not read: hand in its text"},
		"soupe.txt":     {"\n%PDF-1.4", "a PDF"},
		"soup.docx":     {"PK\x03\x04\x14\x00\x06\x00[Content_Types].xml", "such as .docx"},
		"sopa.odt":      {"PK\x03\x04\x14\x00\x00\x08mimetypeapplication/vnd.oasis.opendocument.text", "such as .docx"},
		"suppe.doc":     {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "such as .docx"},
		"soup.rtf":      {`{\rtf1\ansi Soup}`, "RTF"},
		"soup.avif":     {"\x00\x00\x00\x1cftypavif\x00\x00\x00\x00mif1avif", "AVIF, which is not read: hand in the photo as JPEG or PNG"},
		"zuppa.jpg":     {"\x00\x00\x00\x1cftypmif1\x00\x00\x00\x00mif1avifmiaf", "AVIF"},
		"animated.avif": {"\x00\x00\x00\x1cftypavis\x00\x00\x00\x00avismsf1", "AVIF"},
	} {
		server := site(t, map[string]http.HandlerFunc{"/" + name: text("application/octet-stream", file.content)})
		for _, request := range []source.Request{
			{Type: source.KindOf(name, []byte(file.content)), URL: files.put(name, file.content)}, {URL: server.URL + "/" + name},
		} {
			_, err := s.Fetch(t.Context(), request, nil)
			wantError(t, err, failure.Unavailable, false, file.want)
		}
	}
}
