package source_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/services/importer/extract"
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
	installed.YtDlp.Find(t)
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
		{"manual00000", "a person's before a machine's", []sourcetest.Track{automatic("en", rolling), manual("en", english)}, source.Track{Kind: "manual", Language: "en"}, "Sift two cups of flour into a bowl."},
		{"machine0000", "a machine's, each word once", []sourcetest.Track{automatic("en", rolling)}, source.Track{Kind: "automatic", Language: "en"}, "[0.00s] add two cups of flour\n[2.01s] and bake for thirty minutes or longer\n"},
		{"spoken00000", "the spoken language first", []sourcetest.Track{manual("en", english), manual("de", german), automatic("de", rolling)}, source.Track{Kind: "manual", Language: "de"}, "Zwei Tassen Mehl"},
		{"heard000000", "heard, not translated", []sourcetest.Track{automatic("de", german)}, source.Track{Kind: "automatic", Language: "de"}, "Zwei Tassen Mehl"},
		{"hebrew00000", "any language, by its name", []sourcetest.Track{manual("iw", hebrew)}, source.Track{Kind: "manual", Language: "he"}, "שתי כוסות קמח"},
		{"region00000", "a region of it", []sourcetest.Track{manual("fr", german), manual("en-GB", english), automatic("en", rolling)}, source.Track{Kind: "manual", Language: "en-GB"}, "Sift two cups"},
		{"-_broken-_x", "one that is broken is not asked for", []sourcetest.Track{manual("en", english), wrong}, source.Track{Kind: "manual", Language: "en"}, "Sift two cups"},
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
			check.Same(t, "requests for captions", y.Fetches(test.id), 1)
		})
	}
}

// A request can name another language than the spoken one: its captions are fetched.
func TestYouTubeInAWantedLanguage(t *testing.T) {
	t.Parallel()
	y, s, _ := tube(t, map[string]sourcetest.Video{"wanted00000": {Title: "Lemon cake", Tracks: []sourcetest.Track{
		{Language: "en", Body: english}, {Language: "de", Body: german}, {Language: "en", Body: rolling, Automatic: true},
	}}})
	request := watch("wanted00000")
	request.Language = "de-AT"
	m := check.Must(s.Fetch(t.Context(), request, nil))(t)
	if m.Language != "de" || m.ID != "youtube:wanted00000:de-AT" || y.Fetches("wanted00000") != 1 {
		t.Errorf("language %q, id %q, %d requests", m.Language, m.ID, y.Fetches("wanted00000"))
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
	check.Equal(t, want, m.Chapters)
	if strings.TrimSpace(m.Description) != strings.TrimSpace(description) || m.Duration != 5*time.Minute || !strings.Contains(m.Version, "yt-dlp/20") {
		t.Errorf("description %q, duration %s, version %q", m.Description, m.Duration, m.Version)
	}
	check.Equal(t, []float64{0.5, 0.9, 1}, shares)
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
		{"private", sourcetest.Video{Reason: sourcetest.Private}, contracts.CodePrivate, false, gone, 0},
		{"gone", sourcetest.Video{Reason: sourcetest.Gone}, contracts.CodeUnavailable, false, gone, 0},
		{"bot check", sourcetest.Video{Reason: sourcetest.BotCheck}, contracts.CodeBotCheck, true, "not a bot", 0},
		{"old enough", sourcetest.Video{Reason: "Sign in to confirm your age"}, contracts.CodePrivate, false, gone + ": it is restricted by age", 0},
		{"elsewhere", sourcetest.Video{Reason: "The uploader has not made this video available in your country"}, contracts.CodeUnavailable, false, "not shown in the importer's country", 0},
		{"removed", sourcetest.Video{Reason: "This video has been removed by the uploader"}, contracts.CodeUnavailable, false, "it was removed", 0},
		{"upcoming", sourcetest.Video{Reason: "This live event will begin in 3 hours."}, contracts.CodeUnavailable, false, "it has not begun yet", 0},
		{"live", sourcetest.Video{Title: "Cake", Live: true}, contracts.CodeUnavailable, false, "it is live", 0},
		{"no captions", sourcetest.Video{Title: "Cake"}, contracts.CodeNoCaptions, false, "No transcript available - this video may not have captions enabled", 0},
		{"page limited", sourcetest.Video{Status: http.StatusTooManyRequests}, contracts.CodeRateLimited, true, "limits how often", 0},
		{"page broken", sourcetest.Video{Status: http.StatusBadGateway}, contracts.CodeNetwork, true, "cannot be reached", 0},
		{"captions not there", one(sourcetest.Track{Status: http.StatusNotFound}), contracts.CodeCaptionsBlocked, false, "does not hand them out", 1},
		{"captions forbidden", one(sourcetest.Track{Status: http.StatusForbidden}), contracts.CodeCaptionsBlocked, false, "does not hand them out", 1},
		{"captions limited", one(sourcetest.Track{Status: http.StatusTooManyRequests}), contracts.CodeRateLimited, true, "limits how often", 1},
		{"captions broken", one(sourcetest.Track{Status: http.StatusInternalServerError}), contracts.CodeNetwork, true, "cannot be reached", 1},
		{"captions empty", one(sourcetest.Track{Body: ""}), contracts.CodeCaptionsBlocked, false, "does not hand them out", 1},
		{"captions are a page", one(sourcetest.Track{Body: "<!DOCTYPE html><html>"}), contracts.CodeBadCaptions, false, "an HTML page", 1},
		{"captions are text", one(sourcetest.Track{Body: "Sift two cups of flour into a bowl and then stir in the milk."}), contracts.CodeBadCaptions, false, "captions cannot be read", 1},
		{"captions too short", one(sourcetest.Track{Body: cues("Hi.")}), contracts.CodeTooShort, false, "Transcript is too short (3 characters). Recipe videos typically have longer transcripts.", 1},
		{"captions too large", one(sourcetest.Track{Body: english + strings.Repeat("\n", 2<<20)}), contracts.CodeBadCaptions, false, "larger than is read", 1},
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
			check.Same(t, "requests for captions", y.Fetches(id(i)), test.fetches)
		})
	}
}

func TestYouTubeStalls(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		video   sourcetest.Video
		youTube source.YouTube
		message string
	}{
		"the page, longer than the socket waits": {sourcetest.Video{Stall: true}, source.YouTube{SocketTimeout: 500 * time.Millisecond}, "does not answer in time"},
		"the captions, longer than the socket waits": {
			sourcetest.Video{Tracks: []sourcetest.Track{{Language: "en", Stall: true}}}, source.YouTube{SocketTimeout: 500 * time.Millisecond}, "does not answer in time",
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
			wantError(t, err, contracts.CodeTimeout, true, test.message)
		})
	}
}

func TestYouTubeCannotBeReached(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	_, s, _ := tube(t, nil, func(c *source.Config) { c.YouTube.Proxy = gone.URL })
	_, err := s.Fetch(t.Context(), watch("aaaaaaaaaaa"), nil)
	wantError(t, err, contracts.CodeNetwork, true, "cannot be reached")
}

func TestYouTubeIsLeftOut(t *testing.T) {
	t.Parallel()
	_, err := sources(t, source.Config{}).Fetch(t.Context(), watch("aaaaaaaaaaa"), nil)
	wantError(t, err, contracts.CodeUnavailable, false, "not turned on")
}
