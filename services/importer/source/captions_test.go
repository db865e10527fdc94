package source_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/source"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

const captionFile = `WEBVTT
Language: en

00:00:01.000 --> 00:00:04.500
Sift two cups of flour into a bowl.

00:00:05.000 --> 00:00:09.000
Stir in a cup of milk until it is smooth.
`

// site serves paths as they are given, and 404 for any other.
func site(t *testing.T, paths map[string]http.HandlerFunc) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for path, handler := range paths {
		mux.HandleFunc(path, handler)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// text serves one body.
func text(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Write([]byte(body))
	}
}

func sources(t *testing.T, config source.Config) *source.Sources {
	t.Helper()
	if config.AllowNetworks == nil {
		config.AllowNetworks = loopback
	}
	return check.Must(source.New(config))(t)
}

func wantError(t *testing.T, err error, code contracts.ImportCode, again bool, message string) *source.Error {
	t.Helper()
	var e *source.Error
	check.Require(t, errors.As(err, &e), "error %v (%T): want a *source.Error with code %s", err, err, code)
	check.Require(t, e.Code == code && e.Retryable == again && strings.Contains(e.Message, message),
		"code %s, retryable %t, message %q: want %s, %t, %q\n%v", e.Code, e.Retryable, e.Message, code, again, message, err)
	check.That(t, len(e.Message) <= 500, "the message has %d bytes: want 500 at most", len(e.Message))
	return e
}

func TestCaptionFile(t *testing.T) {
	t.Parallel()
	server := site(t, map[string]http.HandlerFunc{
		"/en.vtt": text("text/vtt", captionFile),
		"/en.srt": text("application/octet-stream",
			"1\r\n00:00:01,000 --> 00:00:04,500\r\nSift two cups of flour into a bowl.\r\n\r\n2\r\n00:00:05,000 --> 00:00:09,000\r\nStir in a cup of milk until it is smooth.\r\n"),
		"/en.txt": text("text/plain", "[1.00s] Sift two cups of flour into a bowl.\n[5.00s] Stir in a cup of milk until it is smooth.\n"),
	})
	for _, path := range []string{"/en.vtt", "/en.srt", "/en.txt"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			s := sources(t, source.Config{})
			request := source.Request{JobID: "job-1", URL: server.URL + path + "?utm_source=mail#top"}
			id := check.Must(s.Identify(t.Context(), request))(t)
			var shares []float64
			m := check.Must(s.Fetch(t.Context(), request, func(share float64) { shares = append(shares, share) }))(t)
			var out bytes.Buffer
			check.OK(t, m.Transcript.WriteText(&out))
			want := "[1.00s] Sift two cups of flour into a bowl.\n[5.00s] Stir in a cup of milk until it is smooth.\n"
			check.Equal(t, want, out.String())
			check.That(t, m.ID == id && m.URL == server.URL+path && m.Type == contracts.SourceCaptions && !m.Truncated && m.Version != "",
				"material %+v: want id %s and url %s", m, id, server.URL+path)
			check.Equal(t, []float64{0.8, 1}, shares)
		})
	}
}

// The material is the result of a durable step: it is read back as it was written.
func TestMaterialThroughJSON(t *testing.T) {
	t.Parallel()
	server := site(t, map[string]http.HandlerFunc{"/en.vtt": text("text/vtt", captionFile)})
	m := check.Must(sources(t, source.Config{}).Fetch(t.Context(), source.Request{URL: server.URL + "/en.vtt"}, nil))(t)
	m.Chapters = []extract.Chapter{{Start: 90 * time.Second, Title: "Batter"}}
	m.Duration, m.Image, m.ImageType = time.Minute, []byte{0xff, 0}, "image/jpeg"
	data := check.Must(json.Marshal(m))(t)
	var again source.Material
	check.OK(t, json.Unmarshal(data, &again))
	check.Equal(t, m, &again)
}

func TestCaptionFileErrors(t *testing.T) {
	t.Parallel()
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if len(header) == 2 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(code)
		}
	}
	for _, test := range []struct {
		name    string
		serve   http.HandlerFunc
		code    contracts.ImportCode
		again   bool
		after   time.Duration
		message string
	}{
		{"not there", status(404), contracts.CodeUnavailable, false, 0, "HTTP 404"},
		{"gone", status(410), contracts.CodeUnavailable, false, 0, "HTTP 410"},
		{"private", status(403), contracts.CodePrivate, false, 0, "HTTP 403"},
		{"rate limited", status(429), contracts.CodeRateLimited, true, 0, "HTTP 429"},
		{"rate limited for a time", status(429, "Retry-After", "120"), contracts.CodeRateLimited, true, 2 * time.Minute, "HTTP 429"},
		{"broken", status(500), contracts.CodeNetwork, true, 0, "HTTP 500"},
		{"down for a time", status(503, "Retry-After", "7"), contracts.CodeNetwork, true, 7 * time.Second, "HTTP 503"},
		{"empty answer", status(204), contracts.CodeUnavailable, false, 0, "HTTP 204"},
		{"no bytes", text("text/vtt", ""), contracts.CodeBadCaptions, false, 0, "the input is empty"},
		{"a page", text("text/vtt", "<!DOCTYPE html><title>Sorry</title>"), contracts.CodeBadCaptions, false, 0, "an HTML page"},
		{"data", text("text/vtt", "\x00\x01\x02\x03\x04\x05"), contracts.CodeBadCaptions, false, 0, "binary data"},
		{"no words", text("text/vtt", "WEBVTT\n\n"), contracts.CodeTooShort, false, 0, "Transcript is too short (0 characters). Recipe videos typically have longer transcripts."},
		{"few words", text("text/vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nHéllo\n"), contracts.CodeTooShort, false, 0, "Transcript is too short (5 characters)."},
		{"elsewhere", status(302, "Location", "file:///etc/passwd"), contracts.CodeUnavailable, false, 0, "only http and https"},
		{"in zstd", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "zstd")
			text("text/vtt", "\x28\xb5\x2f\xfd")(w, r)
		}, contracts.CodeUnavailable, false, 0, "compressed in a form that was not asked for"},
		{"in circles", status(302, "Location", "/file.vtt"), contracts.CodeUnavailable, false, 0, "more than 5 redirects"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := site(t, map[string]http.HandlerFunc{"/file.vtt": test.serve})
			_, err := sources(t, source.Config{}).Fetch(t.Context(), source.Request{URL: server.URL + "/file.vtt"}, nil)
			if e := wantError(t, err, test.code, test.again, test.message); e.RetryAfter != test.after || e.Outage != (test.again && !e.Page) || e.Page != (test.name == "broken") {
				t.Errorf("retry after %s, outage %t, of the page %t: want %s, %t", e.RetryAfter, e.Outage, e.Page, test.after, test.again)
			}
		})
	}
}

func TestStallIsATimeout(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"before the answer": "", "within the answer": "WEBVTT\n\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := site(t, map[string]http.HandlerFunc{"/slow.vtt": func(w http.ResponseWriter, r *http.Request) {
				if first != "" {
					text("text/vtt", first)(w, r)
					http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			}})
			_, err := sources(t, source.Config{Timeout: 200 * time.Millisecond}).
				Fetch(t.Context(), source.Request{URL: server.URL + "/slow.vtt"}, nil)
			wantError(t, err, contracts.CodeTimeout, true, "within 200ms")
		})
	}
}

// A cancelled fetch returns the reason of the cancellation: it is no failure of the source.
func TestCancelledFetch(t *testing.T) {
	t.Parallel()
	reason := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	server := site(t, map[string]http.HandlerFunc{"/slow.vtt": func(_ http.ResponseWriter, r *http.Request) {
		cancel(reason)
		<-r.Context().Done()
	}})
	_, err := sources(t, source.Config{}).Fetch(ctx, source.Request{URL: server.URL + "/slow.vtt"}, nil)
	var e *source.Error
	check.That(t, errors.Is(err, reason) && !errors.As(err, &e), "error %v: want the reason of the cancellation, and no *Error", err)
}

func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	server := site(t, nil)
	address := server.URL + "/en.vtt"
	server.Close()
	_, err := sources(t, source.Config{}).Fetch(t.Context(), source.Request{URL: address}, nil)
	wantError(t, err, contracts.CodeNetwork, true, "the connection failed")
}

// A small answer that unpacks to a large one is cut like any other, and said to be.
func TestDecompressionBombIsCut(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	check.OK(t, check.Err(w.Write([]byte(captionFile))))
	line := []byte("00:10.000 --> 00:11.000\nStir.\n\n")
	for range 400_000 { // 12 MB
		check.OK(t, check.Err(w.Write(line)))
	}
	check.OK(t, w.Close())
	server := site(t, map[string]http.HandlerFunc{"/bomb.vtt": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(packed.Bytes())
	}})
	m := check.Must(sources(t, source.Config{MaxBytes: 64 << 10}).Fetch(t.Context(), source.Request{URL: server.URL + "/bomb.vtt"}, nil))(t)
	check.That(t, m.Truncated && m.Transcript.Truncated && len(m.Transcript.Segments) <= 64<<10/len(line)+1,
		"truncated %t, transcript %t with %d segments: want both cut", m.Truncated, m.Transcript.Truncated, len(m.Transcript.Segments))
}

func TestPrivateNetworksAreNotDialled(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	server := site(t, map[string]http.HandlerFunc{"/": func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }})
	closed := check.Must(source.New(source.Config{}))(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "[::1]", "10.0.0.1", "169.254.169.254", "[fd00::1]", "[64:ff9b::7f00:1]"} {
		_, err := closed.Fetch(t.Context(), source.Request{URL: "http://" + host + ":" + port + "/en.vtt"}, nil)
		wantError(t, err, contracts.CodeUnavailable, false, "private or special network")
	}
	// The first address is allowed, and leads to one that is not.
	open := site(t, map[string]http.HandlerFunc{"/en.vtt": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.2:"+port+"/", http.StatusFound)
	}})
	first := sources(t, source.Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	_, err := first.Fetch(t.Context(), source.Request{URL: open.URL + "/en.vtt"}, nil)
	wantError(t, err, contracts.CodeUnavailable, false, "private or special network")
	check.That(t, len(asked) == 0, "%d requests reached the private address", len(asked))
}

func TestConfigNamesAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := source.New(source.Config{MaxBytes: -1, Timeout: -1, AllowNetworks: []netip.Prefix{{}}})
	for _, name := range []string{"MaxBytes", "Timeout", "AllowNetworks"} {
		check.That(t, err != nil && strings.Contains(err.Error(), "Config."+name), "error %v: want it to name %s", err, name)
	}
}
