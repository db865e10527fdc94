package gateway

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/template"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type call struct {
	header http.Header
	body   string
}

// newGateway starts a service, and a channel to it.
func newGateway(t *testing.T, answer http.HandlerFunc, mutate ...func(*Config)) (g *Gateway, calls chan call) {
	t.Helper()
	calls = make(chan call, 10)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check.ErrorIs(t, err, nil)
		calls <- call{r.Header, strings.TrimSpace(string(body))}
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	set, err := template.Parse(fstest.MapFS{
		"x/default.subject": {Data: []byte("hello")}, "x/default.txt": {Data: []byte("{{.Payload.v}}")},
	}, template.Config{})
	check.OK(t, err)
	cfg := Config{Name: "sms", RootCAs: x509.NewCertPool(), Templates: set, Token: "sesame", URL: srv.URL}
	cfg.RootCAs.AddCert(srv.Certificate())
	for _, m := range mutate {
		m(&cfg)
	}
	g = check.Must(New(cfg))(t)
	t.Cleanup(g.Close)
	return g, calls
}

func message(value string) channel.Message {
	payload, err := json.Marshal(map[string]string{"v": value})
	if err != nil {
		panic(err)
	}
	return channel.Message{Address: "+972501234567", EventID: "e", ID: "ntf_1", Locale: "he", Payload: payload, Template: "x", UserID: "ada"}
}

func TestSend(t *testing.T) {
	t.Parallel()
	g, calls := newGateway(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"sid":"SM1","id":7}`)) })
	receipt, err := g.Send(t.Context(), message(`שלום "<&>`))
	check.Require(t, err == nil && receipt.ID == "SM1" && !receipt.Delivered, "%v %v", receipt, err)
	got := <-calls
	want := `{"id":"ntf_1","text":"שלום \"<&>","to":"+972501234567"}`
	check.Equal(t, got.body, want)
	if got.header.Get("Idempotency-Key") != "ntf_1" || got.header.Get("Authorization") != "Bearer sesame" || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", got.header)
	}
}

// A value stays text, whatever it looks like.
func TestBody(t *testing.T) {
	t.Parallel()
	g, calls := newGateway(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, func(c *Config) {
		c.Body = `{"messages":[{"to":["tel:$to"],"body":{"$subject":"$subject: $text"},"n":1.50,"on":true}],"who":"$user/$locale","none":null}`
	})
	receipt, err := g.Send(t.Context(), message(`$to","x":"$id`))
	check.Require(t, err == nil && receipt.ID == "", "%v %v", receipt, err)
	want := `{"messages":[{"body":{"$subject":"hello: $to\",\"x\":\"$id"},"n":1.50,"on":true,"to":["tel:+972501234567"]}],"none":null,"who":"ada/he"}`
	check.Equal(t, (<-calls).body, want)
}

// A service that says that the user's address is gone is believed, and one that says so of something else is not.
func TestAnAddressIsGone(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]channel.Kind{
		`{"gone":"+972501234567"}`: channel.KindGone, `{"gone":"+1"}`: channel.KindMisconfigured, `{"gone":true}`: channel.KindMisconfigured, ``: channel.KindMisconfigured,
	} {
		g, calls := newGateway(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusGone)
			w.Write([]byte(body))
		}, func(c *Config) { c.Body = PushBody })
		_, err := g.Send(t.Context(), message("x"))
		check.Equal(t, channel.Of("sms", err).Kind, want, body)
		check.Equal(t, (<-calls).body, `{"data":null,"id":"ntf_1","text":"x","title":"hello","to":"+972501234567","url":""}`)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]channel.Kind{
		302: channel.KindUnavailable, 400: channel.KindRejected, 401: channel.KindMisconfigured, 404: channel.KindMisconfigured, 409: channel.KindUnknown,
		410: channel.KindMisconfigured, 422: channel.KindRejected, 429: channel.KindRateLimited, 500: channel.KindUnknown, 503: channel.KindUnavailable,
	} {
		g, _ := newGateway(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		})
		_, err := g.Send(t.Context(), message("x"))
		failed, ok := errors.AsType[*channel.Error](err)
		check.That(t,
			ok && failed.Kind == want && failed.Temporary() == (failed.RetryAfter == 7*time.Second) && !strings.Contains(err.Error(), "sesame"),
			"%d: %v, want %s", status, err, want)
	}
	g, calls := newGateway(t, func(http.ResponseWriter, *http.Request) {})
	for kind, m := range map[channel.Kind]channel.Message{
		channel.KindNoAddress: {Template: "x"}, channel.KindMisconfigured: {Address: "a", Template: "y"}, channel.KindRejected: {Address: "a", Template: "x"},
	} {
		_, err := g.Send(t.Context(), m)
		failed, ok := errors.AsType[*channel.Error](err)
		check.That(t, ok && failed.Kind == kind && len(calls) == 0, "%v, want %s", err, kind)
	}
}

func TestConfigIsCheckedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Body: "{", Token: "sesame\r\nX: y", URL: "http://127.0.0.1"})
	for _, want := range []string{"Name", "only https", "Token", "Templates", "Body is not JSON"} {
		check.That(t, err != nil && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "sesame"),
			"%v does not say %s", err, want)
	}
	check.ErrorContains(t, check.Err(New(Config{Body: "{} {}", Name: "x", URL: "https://x"})), "more than one")
}
