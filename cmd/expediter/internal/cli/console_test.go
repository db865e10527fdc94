package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The console takes tokens where the services' settings of OpenID Connect say so, by flag or variable. What is wrong with them is said.
func TestConsoleTakesTokens(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"want its https address":     {"--oidc-issuer", "http://id.example.com", "--oidc-audience", "x"},
		"goes with --oidc-audience":  {"--oidc-issuer", "https://id.example.com"},
		"--tls-cert goes with":       {"--tls-cert", "cert.pem"},
		"without --keys and --oidc-": {"--address", ":8010"},
	} {
		var out bytes.Buffer
		check.Same(t, "code", Run(t.Context(), Config{Stderr: &out, Stdout: &out}, append([]string{"console"}, args...)), ExitUsage)
		check.Says(t, out.String(), want)
	}
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	env := map[string]string{
		"CONSOLE_OIDC_ISSUER": "http://127.0.0.1:1", "CONSOLE_OIDC_AUDIENCE": "expediter", "NATS_URL": srv.URL(), // which nobody answers at
	}
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan int)
	go func() {
		ended <- Run(ctx, Config{Getenv: func(name string) string { return env[name] }, Stderr: writer, Stdout: writer},
			[]string{"console", "--address", "127.0.0.1:0"})
		writer.Close()
	}()
	line := make([]byte, 200)
	n := check.Must(reader.Read(line))(t)
	go io.Copy(io.Discard, reader) //nolint:errcheck // what is logged
	_, url, _ := strings.Cut(strings.TrimSpace(string(line[:n])), "Console: ")
	for path, want := range map[string]int{"": ExitFailure, "livez": ExitOK, "readyz": ExitOK} { // a page needs a token
		check.Same(t, "code of ready /"+path, Run(t.Context(), Config{Stderr: io.Discard}, []string{"ready", url + path}), want)
	}
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	check.OK(t, err)
	check.OK(t, answer.Body.Close())
	check.Same(t, "status of a caller without a token", answer.StatusCode, http.StatusUnauthorized)
	cancel()
	<-ended
}
