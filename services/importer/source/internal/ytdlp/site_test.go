package ytdlp

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/source/internal/program"
)

// client returns one of the real program that may use any site.
func client(t *testing.T, change func(*Config)) *Client {
	t.Helper()
	testbed.YtDlp.Find(t)
	folders := check.Must(program.NewFolders(t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	config := Config{
		Extractors: "generic,html5", Folders: folders, MaxFile: 1 << 20, Path: "yt-dlp",
		SocketTimeout: time.Hour, Timeout: time.Hour, VersionTimeout: time.Hour, // no outcome depends on how fast the machine is
	}
	if change != nil {
		change(&config)
	}
	return check.Must(New(t.Context(), config))(t)
}

func none(float64) {}

const captions = "WEBVTT\n\n00:01.000 --> 00:02.000\nStir.\n"

// A page with <video> and <track>: the program's description of one goes through the same two phases as that of a video
// of YouTube.
func TestVideoSite(t *testing.T) {
	t.Parallel()
	c := client(t, nil)
	page := func(tracks string) string {
		return `<html><head><title>Cake</title></head><body><video src="/cake.mp4">` + tracks + `</video></body></html>`
	}
	track := func(language, address string) string {
		return fmt.Sprintf(`<track kind="subtitles" srclang=%q src=%q>`, language, address)
	}
	for _, test := range []struct {
		name, page string
		key        string
		code       contracts.ImportCode
	}{
		{"English before others", page(track("de", "/missing.vtt") + track("en", "/good.vtt")), "en", ""},
		{"a name for a language", page(`<track kind="subtitles" label="Klingon" src="/good.vtt">`), "Klingon", ""},
		{"an option, a pattern and a path for languages, and a file for captions", page(track("--exec=id", "/good.vtt") +
			track(".*", "/good.vtt") + track("../../x", "/good.vtt") + track("en", "file:///etc/passwd")), "", failure.NoCaptions},
		{"no tracks", page(""), "", failure.NoCaptions},
		{"not there", page(track("en", "/missing.vtt")), "", failure.CaptionsBlocked},
		{"no video", "<html><body>Cake</body></html>", "", failure.Unavailable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var fetches atomic.Int32
			serve := func(status int) http.HandlerFunc {
				return func(w http.ResponseWriter, _ *http.Request) {
					fetches.Add(1)
					w.WriteHeader(status)
					w.Write([]byte(captions))
				}
			}
			mux := http.NewServeMux()
			mux.HandleFunc("/cake", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				w.Write([]byte(test.page))
			})
			mux.HandleFunc("/good.vtt", serve(http.StatusOK))
			mux.HandleFunc("/missing.vtt", serve(http.StatusNotFound))
			server := httptest.NewServer(mux)
			defer server.Close()
			video, err := c.Fetch(t.Context(), "job", server.URL+"/cake", "", none)
			var e *Error
			switch {
			case test.code == "" && err != nil:
				t.Fatal(err)
			case test.code == "":
				check.That(t, video.Track.Key == test.key && string(video.Captions) == captions && fetches.Load() == 1,
					"track %q, captions %q, %d requests: want %q, the file and one", video.Track.Key, video.Captions, fetches.Load(), test.key)
			case !errors.As(err, &e) || e.Code != test.code:
				t.Errorf("error %v: want code %s", err, test.code)
			case fetches.Load() > 1:
				t.Errorf("%d requests: want one at most", fetches.Load())
			}
		})
	}
}

// The address is data to the program, and only the sites that are turned on are asked.
func TestAddressIsNoOption(t *testing.T) {
	t.Parallel()
	c := client(t, func(c *Config) { c.Extractors = "youtube" })
	for _, address := range []string{
		"--exec=touch hacked", "--version", "--dump-user-agent", "--config-locations=/etc/passwd", "-", "file:///etc/passwd", "http://127.0.0.1:1/cake", "ytsearch:cake", "",
	} {
		var e *Error
		if _, err := c.Fetch(t.Context(), "job", address, "", none); !errors.As(err, &e) || e.Code != failure.Unavailable || e.Local {
			t.Errorf("%s: error %v: want it refused", address, err)
		} else if strings.HasPrefix(address, "--") && !strings.Contains(e.Error(), strings.Fields(address)[0]) {
			t.Errorf("%s: error %v: want it taken for an address", address, err)
		} else if strings.Contains(e.Detail, "/etc") || strings.Contains(e.Detail, "://") {
			t.Errorf("%s: the message repeats an address: %s", address, e.Detail)
		}
	}
}

func TestVersionIsChecked(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"echo 2026.08.19":        "",
		"echo 2026.08.19.232811": "",
		"echo 2023.03.04":        "",
		"echo 2022.11.11":        "version 2022.11.11: want 2023.03.04 or later",
		"echo hello":             `says "hello\n"`,
		"exit 1":                 "exits with 1",
		"exec sleep 1000":        "took too long",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			folders := check.Must(program.NewFolders(t.TempDir(), slog.New(slog.DiscardHandler)))(t)
			path := t.TempDir() + "/yt-dlp"
			testbed.WriteProgram(t, path, "#!/bin/sh\n"+script+"\n")
			config := Config{Path: path, Folders: folders, MaxFile: 1 << 20, VersionTimeout: 500 * time.Millisecond}
			if !strings.Contains(script, "sleep") {
				config.VersionTimeout = time.Minute
			}
			c, err := New(t.Context(), config)
			check.That(t, (want != "" || err == nil && c.Version >= MinVersion) && (want == "" || err != nil && strings.Contains(err.Error(), want)),
				"error %v: want %q", err, want)
		})
	}
	folders := check.Must(program.NewFolders(t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	check.ErrorContains(t, check.Err(New(t.Context(), Config{Path: "no-such-yt-dlp", Folders: folders})), "install yt-dlp")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDecodeTakesWhatItCan(t *testing.T) {
	t.Parallel()
	const data = `{"id":"dQw4w9WgXcQ","title":7,"description":null,"uploader":"Cook","duration":"long","chapters":[
		{"start_time":1.5,"title":"Batter"},{"start_time":"x","title":"Bake"},{"start_time":3},4,null],
		"subtitles":{"live_chat":[{"ext":"json"}],"en":[{"ext":"json3","url":"https://a/1"},{"ext":"vtt","url":"https://a/2"}],
		"de":[{"ext":"vtt","url":"file:///etc/passwd"}],"fr":{},"--x":[{"ext":"vtt","url":"https://a/3"}]},"automatic_captions":[]}`
	info := check.Must(decode([]byte(data)))(t)
	check.That(t, info.ID == "dQw4w9WgXcQ" && info.Title == "" && info.Author() == "Cook" && info.Duration() == 0, "info %+v", info)
	check.That(t, len(info.Chapters) == 2 && info.Chapters[0].At() == 1500*time.Millisecond && info.Chapters[1].At() == 0,
		"chapters %+v: want those with a title", info.Chapters)
	check.That(t, len(info.Subtitles) == 1 && info.Subtitles[0].Key == "en" && info.Subtitles[0].address == "https://a/2",
		"subtitles %+v: want the WebVTT file of en alone", info.Subtitles)
	for _, nothing := range []string{"", "null", " \n"} {
		check.ErrorIs(t, check.Err(decode([]byte(nothing))), errNothing, nothing)
	}
}

func TestChooseTrack(t *testing.T) {
	t.Parallel()
	// Each is a list of keys; one with "<" is a translation.
	list := func(keys string) string {
		var out []string
		for key := range strings.FieldsSeq(keys) {
			name, translated := strings.CutSuffix(key, "<")
			address := "https://a/" + name
			if translated {
				address += "?tlang=" + name
			}
			out = append(out, `"`+name+`":[{"ext":"vtt","url":"`+address+`"}]`)
		}
		return "{" + strings.Join(out, ",") + "}"
	}
	for _, test := range []struct{ language, manual, automatic, want string }{
		{"", "", "", ""},
		{"", "", "en-orig en de< fr<", "auto en-orig"},
		{"", "", "de en<", "auto de"},
		{"", "", "en< fr<", ""}, // nothing but translations
		{"de", "", "en-orig de-orig", "auto de-orig"},
		{"", "fr en", "", "en"},
		{"", "fr it", "", "fr"},
		{"fr", "en fr", "", "fr"},
		{"", "en de", "de-orig en<", "de"},
		{"", "en", "de-orig", "auto de-orig"},
		{"de", "en fr", "de en<", "auto de"},
		{"ja", "en fr", "en<", "en"},
		{"pt-BR", "en pt", "", "pt"},
		{"pt", "en pt-BR pt", "", "pt"},
		{"iw", "en he", "", "he"},
		{"", "en-nP7-2PuUl7o", "", "en-nP7-2PuUl7o"},
		{"", "fr en-GB", "en", "en-GB"},
		{"", "en", "en", "en"},
	} {
		language := check.Must(json.Marshal(test.language))(t)
		info, err := decode([]byte(`{"language":` + string(language) + `,"subtitles":` + list(test.manual) + `,"automatic_captions":` + list(test.automatic) + `}`))
		check.OK(t, err)
		got := ""
		if track, ok := info.choose(""); ok {
			if got = track.Key; track.Automatic {
				got = "auto " + got
			}
		}
		check.That(t, got == test.want,
			"language %q, manual %s, automatic %s: chose %q, want %q", test.language, test.manual, test.automatic, got, test.want)
	}
}

// The language that is wanted comes first, a person's before a machine's; where there is none it is as if nobody had asked.
func TestWantedLanguage(t *testing.T) {
	t.Parallel()
	const tracks = `{"language":"en","subtitles":{"en":[{"ext":"vtt","url":"https://x.example/en"}],"pt-BR":[{"ext":"vtt","url":"https://x.example/pt"}]},` +
		`"automatic_captions":{"en":[{"ext":"vtt","url":"https://x.example/a"}],"de":[{"ext":"vtt","url":"https://x.example/b?tlang=de"}],` +
		`"pt-orig":[{"ext":"vtt","url":"https://x.example/c"}],"fr":[{"ext":"vtt","url":"https://x.example/d"}]}}`
	info := check.Must(decode([]byte(tracks)))(t)
	for wanted, want := range map[string]string{"": "en", "en": "en", "en-GB": "en", "pt": "pt-BR", "pt-BR": "pt-BR", "fr": "fr", "de": "en", "he": "en"} {
		track, ok := info.choose(wanted)
		check.That(t, ok && track.Key == want && track.Automatic == (want == "fr"), "want %q: chose %+v", wanted, track)
	}
}

// Messages of several versions of the program, word by word.
func TestWhatItSays(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/said.tsv") {
		err := infoError(row[1])
		check.That(t, string(err.Code) == row[0], "%s\nis %s: want %s", row[1], err.Code, row[0])
	}
	blocked := "WARNING: [youtube] dQw4w9WgXcQ: There are missing subtitles languages because a PO token was not provided. Automatic captions for 1 languages are missing."
	check.Equal(t, withoutCaptions(blocked, true, "is_live").Code, failure.CaptionsBlocked, blocked)
	err := withoutCaptions("WARNING: [youtube] Unable to download webpage: HTTP Error 404: Not Found", true, "not_live")
	check.That(t, err.Code == failure.NoCaptions, "a video that can be played and has no captions is %s: want no_captions", err.Code)
	for words, want := range map[string]string{
		"Sign in to confirm your age. This video may be inappropriate for some users.": aged, "Join this channel to get access to members-only content": members,
		"Video unavailable. The uploader has not made this video available in your country": foreign, "This live event will begin in 3 hours.": upcoming,
		"Premieres in 5 minutes": upcoming, "Video unavailable. This video has been removed by the uploader": gone, "Video unavailable": unavailable,
		"This video is no longer available because the YouTube account associated with this video has been terminated.": gone,
		"This live stream recording is not available.":                                                                  live, "Private video. Sign in if you've been granted access to this video": unavailable,
	} {
		check.Equal(t, infoError("ERROR: [youtube] dQw4w9WgXcQ: "+words).Detail, want)
	}
	for status, want := range map[text]string{"is_live": live, "post_live": live, "is_upcoming": upcoming, "was_live": noCaptions} {
		check.Equal(t, withoutCaptions("", true, status).Detail, want)
	}
	odd := unknown("ERROR: [youtube] dQw4w9WgXcQ: Cannot parse /tmp/x/job-1 of http://me:secret@proxy/; please report this issue on https://github.com/yt-dlp")
	check.Equal(t, odd.Detail, "yt-dlp failed: Cannot parse ... of ...")
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"id":"dQw4w9WgXcQ","duration":1e400,"subtitles":{"en":[{"ext":"vtt","url":"https://a/"}]},"chapters":[{"title":"x"}]}`))
	f.Add([]byte(`{"subtitles":{"en":[{"ext":"vtt","url":"https://a/"}],"en":7}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		info, err := decode(data)
		if err != nil {
			return
		}
		d := info.Duration()
		check.That(t, d >= 0 && d <= 31*24*time.Hour, "duration %s", d)
		track, ok := info.choose("")
		if !ok {
			return
		}
		check.Require(t, !strings.HasPrefix(track.Key, "-") && !strings.ContainsAny(track.Key, "./\\*,= \x00") && fetchable(track.address),
			"chose %q at %q", track.Key, track.address)
		request, err := track.request()
		check.Require(t, err == nil && json.Valid(request), "request %s, error %v", request, err)
	})
}
