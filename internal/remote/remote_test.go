package remote_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "s3cr3t-service-token"

// TestConfigKeepsItsSecret when somebody prints or logs it.
func TestConfigKeepsItsSecret(t *testing.T) {
	t.Parallel()
	config := remote.Config{BaseURL: "https://user:" + token + "@service.example", Token: token}
	var b strings.Builder
	slog.New(slog.NewJSONHandler(&b, nil)).Info("config", "config", config)
	for _, text := range []string{b.String(), fmt.Sprintf("%v %+v %s %#v", config, &config, config, config)} {
		check.That(t, !strings.Contains(text, token) && strings.Contains(text, "service.example"), "it says %s", text)
	}
}

func TestConfigErrorsAreNamedTogether(t *testing.T) {
	t.Parallel()
	err := remote.Config{BaseURL: "ftp://u:hunter2@example.com", Timeout: -1, Token: "a\r\né"}.Validate()
	check.Require(t, err != nil, "no error")
	for _, field := range []string{"BaseURL is", "Timeout is", "Token holds"} {
		check.That(t, strings.Contains(err.Error(), field), "%s is missing in %v", field, err)
	}
	check.That(t, !strings.Contains(err.Error(), "hunter2"), "it tells the password: %v", err)
	for base, ok := range map[string]bool{
		"": false, "http://service:8000": false, "https://u:p@x": false, "https://x?key=1": false, "https://": false, "::": false,
		"https://service": true, "http://127.0.0.1:1/v1/": true, "http://[::1]:1": true, "http://localhost": true,
	} {
		err := remote.Config{BaseURL: base}.Validate()
		check.That(t, (err == nil) == ok, "%q: %v", base, err)
	}
	check.ErrorIs(t, remote.Config{BaseURL: "http://service:8000", AllowHTTP: true}.Validate(), nil)
}

// A service, or a proxy before it, that answers a call twice is not taken to have answered the next one, which is about another
// job: each call has a separate connection. On one that is kept, one in a thousand second answers was taken for another job's. And a
// call whose connection breaks is not made again: the service may have begun the work.
func TestEachCallIsMadeOnceOverAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	var from []string // calls come one after the other
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if from = append(from, r.RemoteAddr); len(from) == 2 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	client := check.Must(remote.New(remote.Config{BaseURL: server.URL, Token: token}, "X-Service-Token", ""))(t)
	for n, broken := range []bool{false, true, false} {
		_, err := client.Call(t.Context(), http.MethodPost, "/", []byte("{}"), "key", 10)
		check.That(t, (err != nil) == broken, "call %d: %v", n, err)
		check.That(t, err == nil || !strings.Contains(err.Error(), "127.0.0.1"), "the error tells the address: %v", err)
	}
	check.That(t, len(from) == 3 && from[0] != from[1] && from[1] != from[2], "calls came from %v", from)
}
