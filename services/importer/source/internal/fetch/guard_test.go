package fetch

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Five redirects are followed, and none to an address that would not have been taken. No proxy of the environment has a say in that.
func TestRedirectsAreChecked(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left, err := strconv.Atoi(r.URL.Path[1:])
		switch {
		case err != nil:
			http.Redirect(w, r, "http://ada:secret@"+r.Host+"/0", http.StatusFound)
		case left > 0:
			http.Redirect(w, r, "/"+strconv.Itoa(left-1), http.StatusFound)
		}
	}))
	defer server.Close()
	c := New(Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Timeout: time.Minute, UserAgent: "test"})
	if transport, ok := c.http.Transport.(*http.Transport); !ok || transport.Proxy != nil {
		t.Error("a proxy of the environment is used")
	}
	for path, want := range map[string]string{"/5": "", "/6": "it is behind more than 5 redirects", "/user": "it holds a user name"} {
		_, err := c.Get(t.Context(), server.URL+path, "*/*", 100)
		blocked, _ := errors.AsType[*remote.BlockedError](err)
		if blocked == nil != (want == "") || blocked != nil && blocked.Reason != want {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// An answer that is compressed ends where its content does, however much it holds, or how little.
func TestPackedAnswersAreBounded(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	for encoding, pack := range map[string]func(io.Writer) io.WriteCloser{
		"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"br":   func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, 4) },
		"zstd": func(w io.Writer) io.WriteCloser {
			out, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
			return out
		},
	} {
		var empty bytes.Buffer
		pack(&empty).Close()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", encoding)
			for many := bytes.Repeat(empty.Bytes(), 10_000); r.URL.Path == "/hollow" && r.Context().Err() == nil; {
				_, _ = w.Write(many) // until the client has gone
			}
			out := pack(w)
			if r.URL.Path == "/bomb" {
				_, _ = out.Write(make([]byte, 32*limit))
			}
			out.Close()
		}))
		t.Cleanup(server.Close)
		c := New(Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Timeout: time.Minute, UserAgent: "test"})
		response, err := c.Get(t.Context(), server.URL+"/bomb", "*/*", limit/2)
		if err != nil || len(response.Body) != limit/2 || !response.Truncated {
			t.Errorf("%s: %v: want the first half MiB", encoding, err)
		}
		if _, err := c.Get(t.Context(), server.URL+"/hollow", "*/*", 1); encoding == "gzip" && !errors.Is(err, ErrHollow) {
			t.Errorf("an answer that goes on and holds nothing: %v, want ErrHollow", err)
		}
		if _, err := c.Get(t.Context(), server.URL+"/empty", "*/*", 1); err != nil {
			t.Errorf("%s: %v: want nothing", encoding, err)
		}
	}
}
