package webhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func secretOf(n int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune('a'+n)), 32)))
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// call is one request that an endpoint got.
type call struct {
	header http.Header
	body   []byte
}

// endpoint is a user's server, over TLS, which passes on the calls that it gets.
func endpoint(t *testing.T, answer http.HandlerFunc) (srv *httptest.Server, calls chan call) {
	t.Helper()
	calls = make(chan call, 10)
	srv = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check.ErrorIs(t, err, nil)
		calls <- call{r.Header, body}
		if answer != nil {
			answer(w, r)
		}
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(t.Output(), nil), slog.LevelError)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv, calls
}

func newWebhook(t *testing.T, srv *httptest.Server, mutate ...func(*Config)) *Webhook {
	t.Helper()
	cfg := Config{AllowNetworks: loopback, Secrets: []string{secretOf(1)}}
	if srv != nil {
		cfg.RootCAs = x509.NewCertPool()
		cfg.RootCAs.AddCert(srv.Certificate())
	}
	for _, m := range mutate {
		m(&cfg)
	}
	w := check.Must(New(cfg))(t)
	t.Cleanup(w.Close)
	return w
}

func message(address string) channel.Message {
	return channel.Message{
		Address: address, Attempt: 1, CreatedAt: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC), EventID: "evt-001", EventType: "X",
		ID: "ntf_1", Payload: json.RawMessage(`{"a":"<&>"}`), RecipientType: "CUSTOMER", UserID: "ada",
	}
}

// Calls are verified as users verify them: by the library of Standard Webhooks, with the secret that each user was
// given.
func TestUsersCanCheckIt(t *testing.T) {
	t.Parallel()
	srv, calls := endpoint(t, nil)
	w := newWebhook(t, srv, func(c *Config) { c.Secrets = []string{secretOf(2), secretOf(1)} })
	m := message(srv.URL)
	receipt, err := w.Send(t.Context(), m)
	check.Require(t, err == nil && receipt.Delivered, "%v %v", receipt, err)
	got := <-calls
	want := `{"type":"X","timestamp":"2026-11-20T18:00:00Z","data":{"event_id":"evt-001","recipient_type":"CUSTOMER","user_id":"ada","payload":{"a":"<&>"}}}`
	check.Equal(t, string(got.body), want)
	check.That(t, got.header.Get("Webhook-Id") == m.ID && got.header.Get("Content-Type") == "application/json", "%v", got.header)
	for user, secrets := range map[string][]string{"ada": {secretOf(1), secretOf(2)}, "eve": {secretOf(1), secretOf(2)}} {
		for _, service := range secrets {
			by := newWebhook(t, nil, func(c *Config) { c.Secrets = []string{service} })
			secret := by.Secrets(m.RecipientType, user, "", contracts.Endpoint{})[0]
			checker := check.Must(standardwebhooks.NewWebhook(secret))(t)
			check.Equal(t, (checker.Verify(got.body, got.header) == nil), user == "ada", fmt.Sprintf("with a secret of %s", user))
		}
	}
	m.Attempt++
	check.OK(t, check.Err(w.Send(t.Context(), m)))
	if again := <-calls; !bytes.Equal(again.body, got.body) || again.header.Get("Webhook-Id") != m.ID {
		t.Errorf("the second try is another message: %s", again.body)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]channel.Kind{
		200: "", 201: "", 202: "", 204: "",
		300: channel.KindUnavailable, 304: channel.KindUnavailable, 307: channel.KindUnavailable,
		400: channel.KindUnavailable, 409: channel.KindUnavailable, 413: channel.KindUnavailable, 415: channel.KindUnavailable, 422: channel.KindUnavailable,
		401: channel.KindUnavailable, 403: channel.KindUnavailable, 404: channel.KindUnavailable, 405: channel.KindUnavailable,
		408: channel.KindUnavailable, 410: channel.KindGone, 425: channel.KindUnavailable, 429: channel.KindRateLimited,
		500: channel.KindUnknown, 501: channel.KindUnavailable, 502: channel.KindUnknown, 503: channel.KindUnavailable, 504: channel.KindTimeout,
		599: channel.KindUnavailable,
	} {
		srv, _ := endpoint(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "7")
			rw.WriteHeader(status)
		})
		_, err := newWebhook(t, srv).Send(t.Context(), message(srv.URL))
		if want == "" {
			check.ErrorIs(t, err, nil, status)
			continue
		}
		failed := channel.Of("webhook", err)
		wait := 7 * time.Second
		if !failed.Temporary() {
			wait = 0
		}
		check.That(t, failed.Kind == want && failed.Status == status && failed.RetryAfter == wait,
			"%d: %s after %s, want %s after %s", status, failed.Kind, failed.RetryAfter, want, wait)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	there, calls := endpoint(t, nil)
	srv, _ := endpoint(t, func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, there.URL, http.StatusPermanentRedirect)
	})
	w := newWebhook(t, srv, func(c *Config) { c.RootCAs.AddCert(there.Certificate()) })
	_, err := w.Send(t.Context(), message(srv.URL))
	check.That(t, channel.Of("webhook", err).Status == http.StatusPermanentRedirect, "%v", err)
	check.Equal(t, len(calls), 0, "calls")
}

func TestWhereItDoesNotGo(t *testing.T) {
	t.Parallel()
	srv, calls := endpoint(t, nil)
	plain := httptest.NewServer(srv.Config.Handler)
	t.Cleanup(plain.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(srv.URL, "https://"), ":")
	strict := newWebhook(t, srv, func(c *Config) { c.AllowNetworks = nil })
	lax := newWebhook(t, srv)
	for name, test := range map[string]struct {
		w       *Webhook
		address string
		kind    channel.Kind
	}{
		"loopback":              {strict, srv.URL, channel.KindBounced},
		"a name of loopback":    {strict, "https://localhost:" + port, channel.KindBounced},
		"the metadata of a VM":  {strict, "https://169.254.169.254/", channel.KindBounced},
		"mapped into IPv6":      {strict, "https://[::ffff:127.0.0.1]:" + port, channel.KindBounced},
		"without TLS":           {lax, plain.URL, channel.KindBounced},
		"with a password":       {lax, "https://u:sesame@127.0.0.1:" + port, channel.KindBounced},
		"a file":                {lax, "file:///etc/passwd", channel.KindBounced},
		"a space":               {lax, srv.URL + "/a b", channel.KindBounced},
		"a space in a query":    {lax, srv.URL + "/a?b c", channel.KindBounced},
		"a space behind":        {lax, srv.URL + "/\u00a0", channel.KindBounced},
		"no URL":                {lax, "ada", channel.KindBounced},
		"not even that":         {lax, "https://sesame%zz", channel.KindBounced},
		"broken JSON":           {lax, `{"url":`, channel.KindBounced},
		"JSON without a secret": {lax, `{"url":"` + srv.URL + `"}`, channel.KindBounced},
		"nowhere":               {lax, "", channel.KindNoAddress},
	} {
		_, err := test.w.Send(t.Context(), message(test.address))
		failed := channel.Of("webhook", err)
		check.That(t, failed.Kind == test.kind && !strings.Contains(err.Error(), "sesame"), "%s: %v", name, err)
	}
	check.Equal(t, len(calls), 0, "calls")
	insecure := newWebhook(t, srv, func(c *Config) { c.AllowHTTP = true })
	check.ErrorIs(t, check.Err(insecure.Send(t.Context(), message(plain.URL))), nil)
}

func TestPayloadThatIsNotJSON(t *testing.T) {
	t.Parallel()
	m := message("https://127.0.0.1:1")
	m.Payload = json.RawMessage("{")
	_, err := newWebhook(t, nil).Send(t.Context(), m)
	check.That(t, channel.Of("webhook", err).Kind == channel.KindRejected, "%v", err)
}

// When there is no answer, it depends on how far the message came.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	silent := func(entered chan<- struct{}) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
		}
	}
	for name, test := range map[string]struct {
		cause error
		kind  channel.Kind
	}{"late": {context.DeadlineExceeded, channel.KindTimeout}, "stopped": {context.Canceled, channel.KindInterrupted}} {
		entered := make(chan struct{})
		srv, _ := endpoint(t, silent(entered))
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-entered
			cancel(test.cause)
		}()
		_, err := newWebhook(t, srv).Send(ctx, message(srv.URL))
		check.That(t, channel.Of("webhook", err).Kind == test.kind, "%s: %v", name, err)
		cancel(nil)
	}
	broken, _ := endpoint(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := newWebhook(t, broken).Send(t.Context(), message(broken.URL+"/sesame"))
	failed := channel.Of("webhook", err)
	check.That(t, failed.Kind == channel.KindUnknown && !strings.Contains(err.Error(), "sesame"), "broken: %v", err)
	srv, calls := endpoint(t, nil)
	untrusted := newWebhook(t, nil)
	_, err = untrusted.Send(t.Context(), message(srv.URL))
	check.That(t, channel.Of("webhook", err).Kind == channel.KindUnavailable, "an unknown certificate: %v", err)
	srv.Close()
	_, err = newWebhook(t, srv).Send(t.Context(), message(srv.URL+"/sesame"))
	check.That(t, channel.Of("webhook", err).Kind == channel.KindUnavailable && !strings.Contains(err.Error(), "sesame"),
		"nobody there: %v", err)
	check.Equal(t, len(calls), 0, "calls")
}

// An answer without end is not read to the end.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	srv, _ := endpoint(t, func(rw http.ResponseWriter, _ *http.Request) {
		var err error
		for sent := 0; sent < 64<<20 && err == nil; sent += 64 << 10 {
			_, err = rw.Write(make([]byte, 64<<10))
		}
		ended <- err
	})
	check.ErrorIs(t, check.Err(newWebhook(t, srv).Send(t.Context(), message(srv.URL))), nil)
	check.That(t, <-ended != nil, "64 MB were read")
}

// An endpoint that accepts a message, and then sends the body of its answer byte by byte, does not keep its caller: the status counts.
func TestABodyThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	srv, _ := endpoint(t, func(rw http.ResponseWriter, r *http.Request) {
		for http.NewResponseController(rw).Flush() == nil && r.Context().Err() == nil {
			_, _ = rw.Write([]byte("x"))
			select {
			case <-r.Context().Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	receipt, err := newWebhook(t, srv).Send(ctx, message(srv.URL))
	check.That(t, err == nil && receipt.Delivered && ctx.Err() == nil, "%+v, %v; the call: %v", receipt, err, ctx.Err())
}

func TestSecretsAreChecked(t *testing.T) {
	t.Parallel()
	short, long := strings.Repeat("s", minKey-1), strings.Repeat("l", maxKey+1)
	for _, secrets := range [][]string{
		nil,
		{""},
		{"whsec_"},
		{"plain text"},
		{"whsec_%%%"},
		{base64.StdEncoding.EncodeToString(make([]byte, 32))},
		{"whsec_" + base64.StdEncoding.EncodeToString([]byte(short))},
		{"whsec_" + base64.StdEncoding.EncodeToString([]byte(long))},
		{secretOf(1), secretOf(2), secretOf(3), secretOf(4), secretOf(5)},
	} {
		_, err := New(Config{Secrets: secrets})
		check.That(t, err != nil, "%q is taken", secrets)
		for _, secret := range secrets {
			check.That(t, err == nil || secret == "" || !strings.Contains(err.Error(), strings.TrimPrefix(secret, "whsec_")) || secret == "whsec_",
				"the error tells the secret: %v", err)
		}
	}
	_, err := New(Config{Secrets: []string{"x", secretOf(1), "y"}})
	check.ErrorContains(t, err, "number 1", "number 3")
}

// The secrets of addresses differ, by the secret of the service, user, address and generation, also where the parts could be shifted,
// and that of the plain address is the one that it always had.
func TestSecretsAreOfOneAddress(t *testing.T) {
	t.Parallel()
	w := newWebhook(t, nil)
	seen := map[string]string{}
	see := func(w *Webhook, kind contracts.RecipientType, user, id string, generation int64) {
		t.Helper()
		name := fmt.Sprintf("%s|%s|%s|%d", kind, user, id, generation)
		all := w.Secrets(kind, user, id, contracts.Endpoint{Generation: generation})
		other, twice := seen[all[0]]
		check.That(t, !twice && len(all) == 1, "%q and %q have the secrets %q", other, name, all)
		check.ErrorIs(t, check.Err(parseSecret(all[0])), nil, name)
		seen[all[0]] = name
	}
	for _, user := range []string{"", "bob", "ada", "ada\x005", "5\x00ada", "phone\x000\x00ada", "ada\x00phone\x005"} {
		for _, id := range []string{"main", "phone", "work"} {
			for _, generation := range []int64{0, 5} {
				see(w, "CUSTOMER", user, id, generation)
			}
		}
	}
	see(w, "ADMIN", "ada", "main", 0)
	see(newWebhook(t, nil, func(c *Config) { c.Secrets = []string{secretOf(2)} }), "CUSTOMER", "ada", "main", 0)
	check.Equal(t, seen["whsec_3StBwXfQ9z2XBZFhuKJNEaNKnIOHCB2sZLa6cZQDmTU="], "CUSTOMER|ada|main|0", "the plain one")
}

// For a day after a rotation the library of Standard Webhooks takes a message with either secret, and then with the new one alone; also
// while the secrets of the service are replaced.
func TestRotationIsChecked(t *testing.T) {
	t.Parallel()
	srv, calls := endpoint(t, nil)
	w := newWebhook(t, srv, func(c *Config) { c.Secrets = []string{secretOf(2), secretOf(1)} })
	before := contracts.Endpoint{Generation: 5}
	old := w.Secrets("CUSTOMER", "ada", "phone", before)
	for since, signs := range map[time.Duration]bool{time.Minute: true, Overlap - time.Minute: true, Overlap + time.Minute: false} {
		m := message(srv.URL)
		m.EndpointID, m.Endpoint = "phone", contracts.Endpoint{Generation: 6, Previous: 5, RotatedAt: time.Now().Add(-since)}
		is := w.Secrets("CUSTOMER", "ada", "phone", m.Endpoint)
		check.OK(t, check.Err(w.Send(t.Context(), m)))
		got := <-calls
		for secret, want := range map[string]bool{is[0]: true, is[1]: true, old[0]: signs, old[1]: signs} {
			checker, err := standardwebhooks.NewWebhook(secret)
			check.OK(t, err)
			err = checker.Verify(got.body, got.header)
			check.That(t, (err == nil) == want, "%s after the rotation: %v, want it to pass: %v", since, err, want)
		}
		check.Equal(t, len(is) == 4, signs, "secrets")
	}
}
