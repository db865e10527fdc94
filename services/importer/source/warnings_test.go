package source_test

import (
	"net/http"
	"strings"
	"testing"

	"golang.org/x/text/encoding/charmap"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/source"
)

const (
	lost    = "Sift two cups of flour into a bowl and then stir in the cr"
	russian = "Нарежьте лук и морковь, обжарьте на сковороде пять минут. Добавьте фарш и тушите на среднем огне."
)

// Captions are read in their encoding: the one that is named, declared or guessed, and a guess is reported.
func TestEncodings(t *testing.T) {
	t.Parallel()
	encode := func(encoding *charmap.Charmap, text string) string {
		out, err := encoding.NewEncoder().String(text)
		check.OK(t, err)
		return out
	}
	koi, file := encode(charmap.KOI8R, russian), cues(russian)
	server := site(t, map[string]http.HandlerFunc{
		"/guess.vtt": text("text/vtt", encode(charmap.Windows1251, file)), "/text.txt": text("text/plain", koi),
		"/named.vtt": text("text/vtt; charset=windows-1251", encode(charmap.Windows1251, file)), "/good.vtt": text("text/vtt", file),
		"/lost.vtt": text("text/vtt", cues(lost+"\xff")), "/times.vtt": text("text/vtt", file+"\n00:xx --> 00:yy\nMore.\n"),
		"/page": text("text/html", encode(charmap.Windows1251, `<video><track src=guess.vtt>`)),
	})
	s := sources(t, source.Config{})
	for _, test := range []struct{ path, encoding, want, warnings string }{
		{"/guess.vtt", "", russian, source.WarnEncoding},
		{"/text.txt", "", russian, source.WarnEncoding},
		{"/named.vtt", "", russian, ""},
		{"/good.vtt", "", russian, ""},
		{"/guess.vtt", "CP1251", russian, ""},
		{"/page", "cp1251", russian, ""},
		{"/text.txt", "koi8-r", russian, ""},
		{"/lost.vtt", "utf-8", lost + "\ufffd", source.WarnCharacters},
		{"/times.vtt", "", russian, source.WarnCues},
	} {
		m, err := s.Fetch(t.Context(), source.Request{URL: server.URL + test.path, Encoding: test.encoding}, nil)
		check.OK(t, err)
		if got := m.Transcript.Segments[0].Text; got != test.want || codes(m) != test.warnings {
			t.Errorf("%s as %q: %q, warnings %v: want %q, %q", test.path, test.encoding, got, m.Warnings, test.want, test.warnings)
		}
	}
	_, err := s.Fetch(t.Context(), source.Request{URL: server.URL + "/good.vtt", Encoding: "klingon"}, nil)
	wantError(t, err, contracts.CodeUnavailable, false, "klingon")
	first, err := s.Identify(t.Context(), source.Request{URL: server.URL + "/text.txt", Encoding: "koi8-r"})
	check.OK(t, err)
	for encoding, same := range map[string]bool{"koi8": true, "": false, "cp1251": false} {
		id, err := s.Identify(t.Context(), source.Request{URL: server.URL + "/text.txt", Encoding: encoding})
		check.That(t, err == nil && (id == first) == same, "%q: id %s, error %v: want that of koi8-r %t", encoding, id, err, same)
	}
}

// A language that the source does not have is reported.
func TestLanguageThatIsNotThere(t *testing.T) {
	t.Parallel()
	const video = `<video><track src=en.vtt srclang=en><track src=en.vtt srclang=de-AT></video>`
	server := site(t, map[string]http.HandlerFunc{
		"/cake": text("text/html", recipePage), "/video": text("text/html", video), "/en.vtt": text("text/vtt", captionFile),
	})
	for _, test := range []struct{ path, wanted, language, warnings string }{
		{"/video", "de", "de-AT", ""},
		{"/video", "fr", "en", source.WarnLanguage},
		{"/video", "en-GB", "en", ""},
		{"/cake", "fr", "en", source.WarnLanguage},
		{"/cake", "en", "en", ""},
		{"/en.vtt", "fr", "fr", ""},
	} {
		m, err := sources(t, source.Config{}).Fetch(t.Context(), source.Request{URL: server.URL + test.path, Language: test.wanted}, nil)
		check.OK(t, err)
		check.That(t, m.Language == test.language && codes(m) == test.warnings,
			"%s in %s: language %q, warnings %v: want %q, %q", test.path, test.wanted, m.Language, m.Warnings, test.language, test.warnings)
	}
}

func codes(m *source.Material) string {
	out := make([]string, 0, len(m.Warnings))
	for _, w := range m.Warnings {
		out = append(out, w.Code)
	}
	return strings.Join(out, " ")
}
