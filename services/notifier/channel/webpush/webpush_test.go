package webpush

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush/webpushtest"
	"github.com/expediter-io/expediter/services/notifier/template"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// browser is one that has subscribed at a push service.
type browser struct {
	*testing.T

	*webpushtest.Browser

	calls chan call
	srv   *httptest.Server
}

type call struct {
	header http.Header
	body   []byte
}

// subscribe starts a push service with one browser.
func subscribe(t *testing.T, answer http.HandlerFunc) *browser {
	t.Helper()
	b := &browser{T: t, Browser: check.Must(webpushtest.New())(t), calls: make(chan call, 10)}
	b.srv = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check.ErrorIs(t, err, nil)
		b.calls <- call{r.Header, body}
		if answer != nil {
			answer(w, r)
			return
		}
		w.Header().Set("Location", "/message/1")
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(b.srv.Close)
	return b
}

// address returns the browser's subscription.
func (b *browser) address() string { return b.Address(b.srv.URL + "/sesame") }

func (b *browser) client(mutate ...func(*Config)) *WebPush {
	b.Helper()
	key, _, err := GenerateKey()
	check.OK(b, err)
	set, err := template.Parse(fstest.MapFS{
		"x/default.subject": {Data: []byte("Table for {{.Payload.guests}}")}, "x/default.txt": {Data: []byte("{{.Payload.text}}")},
		"y/default.webpush.json": {Data: []byte(`{"title":"t","body":"{{.Payload.text}}","url":"/x","icon":"https://i.example/i.png","data":{"of":["{{.Payload.long}}"]}}`)},
	}, template.Config{})
	check.OK(b, err)
	cfg := Config{
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, PrivateKey: key, RootCAs: x509.NewCertPool(),
		Subject: "mailto:push@example.com", Templates: set,
	}
	cfg.RootCAs.AddCert(b.srv.Certificate())
	for _, m := range mutate {
		m(&cfg)
	}
	w := check.Must(New(cfg))(b)
	b.Cleanup(w.Close)
	return w
}

func message(address string, mutate ...func(*channel.Message)) channel.Message {
	m := channel.Message{
		Address: address, Attempt: 1, EventID: "evt-001", EventType: "X", ID: "ntf_1", Template: "x", UserID: "ada",
		Payload: json.RawMessage(`{"guests":4,"text":"<שלום>"}`), Priority: channel.UrgencyCritical,
	}
	for _, f := range mutate {
		f(&m)
	}
	return m
}

func TestSend(t *testing.T) {
	t.Parallel()
	b := subscribe(t, nil)
	w := b.client()
	for attempt := 1; attempt <= 2; attempt++ {
		receipt, err := w.Send(t.Context(), message(b.address(), func(m *channel.Message) { m.Attempt = attempt }))
		check.Require(t, err == nil && !receipt.Delivered && receipt.ID == "/message/1", "%v %v", receipt, err)
		got := <-b.calls
		want := `{"id":"ntf_1","title":"Table for 4","body":"<שלום>","event_id":"evt-001","event_type":"X"}`
		check.Equal(t, string(check.Must(b.Open(got.body))(t)), want)
		for name, want := range map[string]string{
			"TTL": "2419200", "Urgency": "high", "Topic": topic("ntf_1"), "Content-Encoding": "aes128gcm", "Content-Type": "application/octet-stream",
		} {
			check.Equal(t, got.header.Get(name), want, name)
		}
		checkToken(t, got.header.Get("Authorization"), b.srv.URL, w.PublicKey())
	}
	name := topic("ntf_1")
	check.That(t, len(name) == 32 && name != topic("ntf_2"), "topic %q", name)
}

// checkToken checks the token of a call as push services do.
func checkToken(t *testing.T, header, audience, public string) {
	t.Helper()
	jwt, key, found := strings.Cut(strings.TrimPrefix(header, "vapid t="), ", k=")
	parts := strings.Split(jwt, ".")
	check.Require(t, found && key == public && len(parts) == 3, "%q", header)
	raw, signature := unb64(t, public), unb64(t, parts[2])
	verifier, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), raw)
	check.Require(t, err == nil && len(signature) == 64, "%v", err)
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	check.That(t, ecdsa.Verify(verifier, sum[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])),
		"the signature is wrong")
	var head struct {
		Typ string `json:"typ"`
		Alg string `json:"alg"`
	}
	var claims struct {
		Aud string `json:"aud"`
		Exp int64  `json:"exp"`
		Sub string `json:"sub"`
	}
	check.OK(t, errors.Join(json.Unmarshal(unb64(t, parts[0]), &head), json.Unmarshal(unb64(t, parts[1]), &claims)))
	left := time.Until(time.Unix(claims.Exp, 0))
	if head.Typ != "JWT" || head.Alg != "ES256" || claims.Aud != audience || claims.Sub != "mailto:push@example.com" || left <= 0 || left > 24*time.Hour {
		t.Errorf("%+v %+v", head, claims)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]channel.Kind{
		200: "", 201: "", 202: "", 204: "", 307: channel.KindUnavailable,
		400: channel.KindRejected, 401: channel.KindMisconfigured, 403: channel.KindMisconfigured, 404: channel.KindGone, 410: channel.KindGone,
		413: channel.KindRejected, 429: channel.KindRateLimited, 500: channel.KindUnknown, 503: channel.KindUnavailable,
	} {
		b := subscribe(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "7")
			rw.WriteHeader(status)
		})
		_, err := b.client().Send(t.Context(), message(b.address()))
		if want == "" {
			check.ErrorIs(t, err, nil, status)
			continue
		}
		failed := channel.Of("webpush", err)
		check.That(t,
			failed.Kind == want && failed.Temporary() == (failed.RetryAfter == 7*time.Second) && !strings.Contains(err.Error(), "sesame"),
			"%d: %v after %s, want %s", status, err, failed.RetryAfter, want)
	}
}

func TestWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	b := subscribe(t, nil)
	good := b.address()
	w := b.client()
	public := b64.EncodeToString(b.Key.PublicKey().Bytes())
	for name, test := range map[string]struct {
		m    channel.Message
		kind channel.Kind
	}{
		"no address":    {message(""), channel.KindNoAddress},
		"no JSON":       {message("https://push.example/sesame"), channel.KindBounced},
		"no keys":       {message(`{"endpoint":"` + b.srv.URL + `/sesame"}`), channel.KindBounced},
		"a short auth":  {message(strings.Replace(good, b64.EncodeToString(b.Auth), "c2VzYW1l", 1)), channel.KindBounced},
		"no point":      {message(strings.Replace(good, public, "sesame", 1)), channel.KindBounced},
		"off the curve": {message(strings.Replace(good, public, b64.EncodeToString(append([]byte{4}, make([]byte, 64)...)), 1)), channel.KindBounced},
		"no TLS":        {message(strings.Replace(good, "https://", "http://", 1)), channel.KindBounced},
		"no template":   {message(good, func(m *channel.Message) { m.Template = "z" }), channel.KindMisconfigured},
		"no value":      {message(good, func(m *channel.Message) { m.Payload = nil }), channel.KindRejected},
	} {
		_, err := w.Send(t.Context(), test.m)
		check.That(t, channel.Of("webpush", err).Kind == test.kind && !strings.Contains(err.Error(), "sesame"), "%s: %v, want %s", name, err,
			test.kind)
	}
	inside := b.client(func(c *Config) { c.AllowNetworks = nil })
	_, err := inside.Send(t.Context(), message(good))
	check.That(t, channel.Of("webpush", err).Kind == channel.KindBounced, "into our own network: %v", err)
	check.Equal(t, len(b.calls), 0, "calls")
}

// A push has the link, the icon and the data of its template. Its body makes room for them, and data that does not fit is an error.
func TestPartsOfAPush(t *testing.T) {
	t.Parallel()
	b := subscribe(t, nil)
	send := func(text, long string) error {
		payload := check.Must(json.Marshal(map[string]string{"text": text, "long": long}))(t)
		return check.Err(b.client().Send(t.Context(), message(b.address(), func(m *channel.Message) { m.Payload, m.Template = payload, "y" })))
	}
	check.OK(t, send("b", `"}`))
	want := `{"id":"ntf_1","title":"t","body":"b","event_id":"evt-001","event_type":"X","url":"/x","icon":"https://i.example/i.png","data":{"of":["\"}"]}}`
	check.Equal(t, string(check.Must(b.Open((<-b.calls).body))(t)), want)
	check.OK(t, send(strings.Repeat("b", MaxPlain), strings.Repeat("x", MaxPlain/2)))
	<-b.calls
	check.Equal(t, channel.Of("webpush", send("b", strings.Repeat("x", MaxPlain))).Kind, channel.KindRejected, "result")
}

// Keys come in either alphabet of base64, and a body that is too long is cut.
func TestForms(t *testing.T) {
	t.Parallel()
	b := subscribe(t, nil)
	w := b.client()
	std := strings.NewReplacer("-", "+", "_", "/")
	public, auth := b64.EncodeToString(b.Key.PublicKey().Bytes()), b64.EncodeToString(b.Auth)
	address := strings.NewReplacer(public, std.Replace(public)+"=", auth, std.Replace(auth)+"==").Replace(b.address())
	for _, letter := range []string{"x", "é", "\\n", "<", `\"`, "\\u200b"} {
		long := json.RawMessage(`{"guests":4,"text":"` + strings.Repeat(letter, 5000) + `"}`)
		check.OK(t, check.Err(w.Send(t.Context(), message(address, func(m *channel.Message) { m.Payload = long }))))
		plain := check.Must(b.Open((<-b.calls).body))(t)
		var n notice
		err := json.Unmarshal(plain, &n)
		check.That(t, err == nil && strings.HasSuffix(n.Body, "…") && len(plain) >= MaxPlain-10, "%q: %d bytes (%v)", letter, len(plain), err)
	}
}

// TestTokenIsForTheOrigin: push services compare the audience with their origin.
func TestTokenIsForTheOrigin(t *testing.T) {
	t.Parallel()
	private, public, err := GenerateKey()
	check.OK(t, err)
	s := check.Must(newSigner(private, "mailto:push@example.com"))(t)
	for endpoint, want := range map[string]string{
		"https://push.example:443/a": "https://push.example", "https://PUSH.Example/a?b": "https://push.example",
		"https://[::1]:443/": "https://[::1]", "https://push.example:8443/a": "https://push.example:8443", "http://push.example:443/": "http://push.example:443",
	} {
		header := check.Must(s.authorization(check.Must(url.Parse(endpoint))(t)))(t)
		checkToken(t, header, want, public)
	}
}

func TestConfigIsCheckedAtOnce(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{"mailto:", "mailto:push", "mailto: push@example.com", "mailto:Ops <push@example.com>", "https://", "https:example.com", "http://example.com", "https://exa mple.com", ""} {
		_, err := New(Config{Subject: subject})
		check.ErrorContains(t, err, fmt.Sprintf("Subject is %q", subject))
	}
	_, err := New(Config{PrivateKey: "sesame", Subject: "push@example.com"})
	for _, want := range []string{"PrivateKey", "Subject", "Templates"} {
		check.That(t, err != nil && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "sesame"),
			"%v does not say %s", err, want)
	}
}

func unb64(t *testing.T, text string) []byte {
	t.Helper()
	return check.Must(b64.DecodeString(text))(t)
}

func private(t *testing.T, text string) *ecdh.PrivateKey {
	t.Helper()
	return check.Must(ecdh.P256().NewPrivateKey(unb64(t, text)))(t)
}

// The example of RFC 8291, section 5 and appendix A: it holds for us, and for the browser that the other tests have.
func TestTheExampleOfTheRFC(t *testing.T) {
	t.Parallel()
	const (
		plain = "When I grow up, I want to be a watermelon"
		want  = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_" +
			"yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
	)
	browser, ours := private(t, "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"), private(t, "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")
	auth, salt := unb64(t, "BTBZMqHH6r4Tts7J_aSIgg"), unb64(t, "DGv6ra1nlYgDCS1FRnbzlw")
	got, err := encrypt([]byte(plain), browser.PublicKey(), auth, ours, salt)
	if err != nil || b64.EncodeToString(got) != want {
		t.Errorf("%s (%v), want\n%s", b64.EncodeToString(got), err, want)
	}
	check.Equal(t, string(check.Must((&webpushtest.Browser{Auth: auth, Key: browser}).Open(unb64(t, want)))(t)), plain,
		"the test's browser reads")
}

func TestSizes(t *testing.T) {
	t.Parallel()
	browser := check.Must(webpushtest.New())(t)
	s := subscription{auth: browser.Auth, browser: browser.Key.PublicKey()}
	for _, size := range []int{0, 1, MaxPlain} {
		plain := bytes.Repeat([]byte("x"), size)
		body, err := s.seal(plain)
		check.That(t, err == nil && len(body) == size+overhead && bytes.Equal(check.Must(browser.Open(body))(t), plain),
			"%d bytes: %d sealed, %v", size, len(body), err)
		again, err := s.seal(plain)
		check.That(t, err == nil && !bytes.Equal(body[:21+publicSize], again[:21+publicSize]), "a key or a salt was used twice (%v)", err)
	}
	check.That(t, check.Err(s.seal(make([]byte, MaxPlain+1))) != nil, "too much is taken")
}
