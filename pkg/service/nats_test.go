package service

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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

// A connection on which nothing arrives any more, as when the server's machine is gone, is given up within seconds, and the service
// connects anew.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	// nats.go keeps timers in a pool of the process, and those of a bubble are of no use elsewhere. A pool is empty after two
	// collections.
	runtime.GC()
	runtime.GC()
	defer runtime.GC()
	defer runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		options := check.Must(BaseConfig{Logger: slog.New(slog.DiscardHandler)}.natsOptions("test"))(t)
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
	check.Is(t, AskReady(t.Context(), server.URL+"/readyz"), nil)
	status = http.StatusServiceUnavailable
	check.Contains(t, AskReady(t.Context(), server.URL+"/readyz"), "/readyz: 503 Service Unavailable: store")
	server.Close()
	check.Failsf(t, AskReady(t.Context(), server.URL), "a service that is not there is ready")
}
