package fetch

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/expediter-io/expediter/internal/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nameServer answers every question for an address: the first time with the first of them, and so on, the last for ever.
func nameServer(t *testing.T, addresses ...string) (*net.Resolver, *atomic.Int32) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := &atomic.Int32{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var question dnsmessage.Message
			if question.Unpack(buffer[:n]) != nil || len(question.Questions) != 1 {
				continue
			}
			answer := dnsmessage.Message{Header: dnsmessage.Header{ID: question.ID, Response: true}, Questions: question.Questions}
			if q := question.Questions[0]; q.Type == dnsmessage.TypeA {
				i := min(int(asked.Add(1)), len(addresses)) - 1
				answer.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(addresses[i]).As4()},
				}}
			}
			packed, err := answer.Pack()
			if err != nil {
				continue
			}
			if _, err := conn.WriteTo(packed, from); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}, asked
}

// A name that leads to an address that may be fetched, and a moment later to one that may not, is followed the first time only:
// the address is checked when it is dialled, not before.
func TestRebinding(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "/secret", http.StatusFound)
		}
	}))
	defer server.Close()
	_, port, found := strings.Cut(server.Listener.Addr().String(), ":")
	if !found {
		t.Fatal(server.URL)
	}
	resolver, asked := nameServer(t, "127.0.0.1", "127.0.0.2")
	c := New(Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Resolver: resolver, Timeout: time.Minute, UserAgent: "test"})
	_, err := c.Get(t.Context(), "http://rebind.example:"+port+"/redirect", "*/*", 100)
	var blocked *remote.BlockedError
	if !errors.As(err, &blocked) || !strings.HasPrefix(blocked.Address, "127.0.0.2:") {
		t.Errorf("error %v: want the second address blocked", err)
	}
	if reached.Load() != 1 || asked.Load() < 2 {
		t.Errorf("%d requests, %d look-ups: want one, and at least two", reached.Load(), asked.Load())
	}
}

// Five redirects are followed, and none to an address that would not have been taken.
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
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", encoding)
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
		if _, err := c.Get(t.Context(), server.URL+"/empty", "*/*", 1); err != nil {
			t.Errorf("%s: %v: want nothing", encoding, err)
		}
	}
}

// The environment of the process has no say in where we go.
func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("direct")) }))
	defer server.Close()
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	resolver, _ := nameServer(t, "127.0.0.1")
	c := New(Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Resolver: resolver, Timeout: time.Minute, UserAgent: "test"})
	_, port, found := strings.Cut(server.Listener.Addr().String(), ":")
	if !found {
		t.Fatal(server.URL)
	}
	response, err := c.Get(t.Context(), "http://site.example:"+port+"/", "*/*", 3)
	if err != nil || string(response.Body) != "dir" || !response.Truncated {
		t.Errorf("response %+v, error %v: want the first three bytes", response, err)
	}
}
