package service

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

type shop struct {
	BaseConfig

	Secret  string   `env:"SHOP_SECRET"`
	Secrets []string `env:"SHOP_SECRETS"`
}

// file writes a file, and returns its path.
func file(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	check.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestAFileHasAValue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for text, want := range map[string]string{
		"one\n": `"one" ["one"]`, " a\r\nb\n\n": `" a\nb" [" a" "b"]`, //nolint:gocritic // a list that begins with a space
	} {
		path := file(t, dir, "secret", text)
		var cfg shop
		err := Read("shop", map[string]string{"SHOP_SECRET_FILE": path, "SHOP_SECRETS_FILE": path}, io.Discard, &cfg)
		got := fmt.Sprintf("%q %q", cfg.Secret, cfg.Secrets)
		check.That(t, err == nil && got == want, "%q is %s, %v", text, got, err)
	}
	large := file(t, dir, "large", strings.Repeat("x", maxValue+1))
	var cfg shop
	err := Read("shop", map[string]string{
		"SHOP_SECRET": "x", "SHOP_SECRET_FILE": large, "SHOP_SECRETS_FILE": file(t, dir, "empty", "\n"), "SHOP_LISTEN_FILE": filepath.Join(dir, "none"),
		"SHOP_NOTHING_FILE": large, "SHOP_FILE": large, "NATS_URL_FILE": large,
	}, io.Discard, &cfg)
	check.ErrorContains(t, err,
		"SHOP_SECRET_FILE: SHOP_SECRET is set, too", "SHOP_SECRETS_FILE: ", "is empty", "SHOP_LISTEN_FILE: open", "variable SHOP_NOTHING_FILE",
		"variable SHOP_FILE", "NATS_URL_FILE: ", "has more than 65536 bytes",
	)
}

// silent is a way to servers of which each greets, and says nothing more.
type silent struct{ dialled chan time.Time }

func (s *silent) Dial(string, string) (net.Conn, error) {
	near, far := net.Pipe()
	s.dialled <- time.Now()
	go func() {
		defer far.Close()
		lines := bufio.NewReader(far)
		_, err := io.WriteString(far, `INFO {"server_id":"s","version":"2.15.2","max_payload":1048576}`+"\r\n")
		for greeted := false; err == nil; {
			var line string
			line, err = lines.ReadString('\n')
			if err == nil && !greeted && strings.HasPrefix(line, "PING") {
				greeted = true
				_, err = io.WriteString(far, "PONG\r\n")
			}
		}
	}()
	return near, nil
}

// A connection on which nothing arrives any more, as when the server's machine is gone, is given up within seconds, and a service, or a
// command that runs for long, connects to another one.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	// nats.go keeps timers in a pool of the process, and those of a bubble are of no use elsewhere. A pool is empty after two
	// collections.
	runtime.GC()
	runtime.GC()
	defer runtime.GC()
	defer runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		options := check.Must(NATSConfig{}.Options())(t)
		server := &silent{dialled: make(chan time.Time, 1)}
		nc := check.Must(nats.Connect(nats.DefaultURL, append(options, nats.SetCustomDialer(server))...))(t)
		defer nc.Close()
		first := <-server.dialled
		took := (<-server.dialled).Sub(first)
		check.That(t, took <= 12*time.Second, "it took %s", took)
	})
}

func TestHealthCheckAsksOverTLSAndSaysWhatIsNotReady(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte("store: no leader"))
	}))
	check.ErrorIs(t, AskReady(t.Context(), server.URL+"/readyz"), nil)
	status = http.StatusServiceUnavailable
	check.ErrorContains(t, AskReady(t.Context(), server.URL+"/readyz"), "/readyz: 503 Service Unavailable: store")
	server.Close()
	check.That(t, AskReady(t.Context(), server.URL) != nil, "a service that is not there is ready")
}
