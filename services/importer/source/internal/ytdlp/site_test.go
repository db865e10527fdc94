package ytdlp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/services/importer/source/internal/program"
)

// client returns one of the real program that may use any site.
func client(t *testing.T, change func(*Config)) *Client {
	t.Helper()
	installed.YtDlp.Find(t)
	folders, err := program.NewFolders(t.TempDir())
	check.OK(t, err)
	config := Config{
		Extractors: "generic,html5", Folders: folders, Log: slog.New(slog.DiscardHandler), MaxFile: 1 << 20, Path: "yt-dlp",
		SocketTimeout: time.Hour, Timeout: time.Hour, VersionTimeout: time.Hour, // no outcome depends on how fast the machine is
	}
	if change != nil {
		change(&config)
	}
	c, err := New(t.Context(), config)
	check.OK(t, err)
	return c
}

func none(string, float64) {}

const captions = "WEBVTT\n\n00:01.000 --> 00:02.000\nStir.\n"

// A page with <video> and <track>: what the program makes of one goes through the same two phases as a video of YouTube.
func TestVideoSite(t *testing.T) {
	t.Parallel()
	patient, hasty := client(t, nil), client(t, func(c *Config) { c.SocketTimeout = 500 * time.Millisecond })
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
		{"one track", page(track("en", "/good.vtt")), "en", ""},
		{"English before others", page(track("de", "/missing.vtt") + track("en", "/good.vtt")), "en", ""},
		{"any language", page(track("he", "/good.vtt")), "he", ""},
		{"a name for a language", page(`<track kind="subtitles" label="Klingon" src="/good.vtt">`), "Klingon", ""},
		{"an option for a language", page(track("--exec=id", "/good.vtt")), "", contracts.CodeNoCaptions},
		{"a pattern for a language", page(track(".*", "/good.vtt")), "", contracts.CodeNoCaptions},
		{"a path for a language", page(track("../../x", "/good.vtt")), "", contracts.CodeNoCaptions},
		{"a file for captions", page(track("en", "file:///etc/passwd")), "", contracts.CodeNoCaptions},
		{"no tracks", page(""), "", contracts.CodeNoCaptions},
		{"two videos", page(track("en", "/good.vtt")) + page(track("de", "/missing.vtt")), "en", ""},
		{"not there", page(track("en", "/missing.vtt")), "", contracts.CodeCaptionsBlocked},
		{"limited", page(track("en", "/limited.vtt")), "", contracts.CodeRateLimited},
		{"stalled", page(track("en", "/slow.vtt")), "", contracts.CodeTimeout},
		{"no video", "<html><body>Cake</body></html>", "", contracts.CodeUnavailable},
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
			mux.HandleFunc("/limited.vtt", serve(http.StatusTooManyRequests))
			mux.HandleFunc("/missing.vtt", serve(http.StatusNotFound))
			mux.HandleFunc("/slow.vtt", func(_ http.ResponseWriter, r *http.Request) {
				fetches.Add(1)
				<-r.Context().Done()
			})
			server := httptest.NewServer(mux)
			defer server.Close()
			c := patient
			if test.name == "stalled" {
				c = hasty
			}
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
		if _, err := c.Fetch(t.Context(), "job", address, "", none); !errors.As(err, &e) || e.Code != contracts.CodeUnavailable || e.Local {
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
			folders, err := program.NewFolders(t.TempDir())
			check.OK(t, err)
			path := t.TempDir() + "/yt-dlp"
			check.OK(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
			config := Config{Path: path, Folders: folders, MaxFile: 1 << 20, VersionTimeout: 500 * time.Millisecond}
			if !strings.Contains(script, "sleep") {
				config.VersionTimeout = time.Minute
			}
			c, err := New(t.Context(), config)
			check.That(t, (want != "" || err == nil && c.Version >= MinVersion) && (want == "" || err != nil && strings.Contains(err.Error(), want)),
				"error %v: want %q", err, want)
		})
	}
	folders, err := program.NewFolders(t.TempDir())
	check.OK(t, err)
	check.Contains(t, check.Err(New(t.Context(), Config{Path: "no-such-yt-dlp", Folders: folders})), "install yt-dlp")
}
