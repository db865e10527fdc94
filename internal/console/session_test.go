package console

import (
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// provider is a provider of tokens, whose keys change when it is told so.
type provider struct {
	mu   sync.Mutex
	keys jose.JSONWebKeySet
}

// withdraw gives the only key another id.
func (p *provider) withdraw(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys.Keys[0].KeyID = id
}

const providerURL = "https://id.example.com"

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := httptest.NewRecorder()
	var document any = map[string]string{"issuer": providerURL, "jwks_uri": providerURL + "/keys"}
	if r.URL.Path == "/keys" {
		document = p.keys
	}
	err := json.NewEncoder(w).Encode(document)
	return w.Result(), err
}

// browser keeps the cookie of a console.
type browser struct {
	*testing.T

	console *Console
	cookie  string
}

func (b *browser) do(method, path string, form url.Values, cookie string) (status int, answered http.Header) {
	r := httptest.NewRequestWithContext(b.Context(), method, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Cookie", cookie)
	w := httptest.NewRecorder()
	b.console.ServeHTTP(w, r)
	return w.Code, w.Header()
}

func (b *browser) signIn(secret string) {
	b.Helper()
	status, h := b.do(http.MethodPost, "/sign-in", url.Values{"key": {secret}}, b.cookie)
	check.Equal(b.T, status, http.StatusSeeOther, "status of signing in")
	b.cookie, _, _ = strings.Cut(h.Get("Set-Cookie"), ";")
}

// wantPageShown checks whether a cookie opens a page.
func (b *browser) wantPageShown(what, cookie string, want bool) {
	b.Helper()
	status, _ := b.do(http.MethodGet, "/dead/replays", nil, cookie)
	check.Equal(b.T, status == http.StatusOK, want, what+": a page is shown")
}

// A session ends for good, in the console and not just in the browser, when its person signs in or out, and when its key or token is
// withdrawn, ends or has other permissions. Those of other browsers go on.
func TestSessionsEnd(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		file := filepath.Join(t.TempDir(), "keys.json")
		reader := []access.Scope{access.Read}
		ada := check.Must(access.Add(file, access.Key{Name: "ada", Scopes: reader}))(t)
		ben := check.Must(access.Add(file, access.Key{Name: "ben", Scopes: reader}))(t)
		keys := check.Must(access.Open("console", file, slog.New(slog.DiscardHandler)))(t)
		public, private, err := ed25519.GenerateKey(nil)
		check.OK(t, err)
		p := &provider{keys: jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: "1"}}}}
		tokens := check.Must(access.NewOIDC(access.OIDCConfig{
			Audience: "console", Issuer: providerURL, Logger: slog.New(slog.DiscardHandler), Name: "console", Transport: p,
		}))(t)
		natstest.Background(t, keys.Run)
		natstest.Background(t, tokens.Run)
		nc, js := natstest.Connect(t, srv)
		c := check.Must(New(Config{
			Access: access.NewGuard(keys, tokens), Accounts: []Account{{JetStream: js}}, Conn: nc, Logger: slog.New(slog.DiscardHandler), ReadOnly: true,
		}))(t)
		signer := check.Must(jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: private}, (&jose.SignerOptions{}).WithHeader("kid", "1")))(t)
		token := func() string {
			return check.Must(jwt.Signed(signer).Claims(map[string]any{
				"iss": providerURL, "aud": "console", "client_id": "app", "sub": "cat", "scope": "read all-users", "exp": time.Now().Add(time.Hour).Unix(),
			}).Serialize())(t)
		}
		key := func() string { return ada }
		saved := check.Must(os.ReadFile(file))(t)
		edit := func(change func(*access.Key)) func(*browser) {
			return func(*browser) {
				var all struct {
					Keys []access.Key `json:"keys"`
				}
				check.OK(t, json.Unmarshal(saved, &all))
				change(&all.Keys[0])
				check.OK(t, os.WriteFile(file, check.Must(json.Marshal(all))(t), 0o600))
				natstest.Pass(3 * time.Second)
			}
		}
		for what, row := range map[string]struct {
			secret func() string
			end    func(*browser)
		}{
			"signed in a second time":   {key, func(b *browser) { b.signIn(ada) }},
			"signed in as another":      {key, func(b *browser) { b.signIn(ben) }},
			"signed in with a token":    {key, func(b *browser) { b.signIn(token()) }},
			"signed in with two":        {key, func(b *browser) { b.cookie = cookieName + "=x; " + b.cookie; b.signIn(ada) }},
			"signed out":                {token, func(b *browser) { b.do(http.MethodPost, "/sign-out", nil, b.cookie) }},
			"key revoked":               {key, edit(func(k *access.Key) { k.Name, k.SHA256 = "eve", strings.Repeat("0", 64) })},
			"key ended":                 {key, edit(func(k *access.Key) { k.Expires = time.Now() })},
			"key with more permissions": {key, edit(func(k *access.Key) { k.Scopes = append(k.Scopes, access.Operate) })},
			"key of one user":           {key, edit(func(k *access.Key) { k.User = "7" })},
			"token's key withdrawn":     {token, func(*browser) { p.withdraw("2"); natstest.Pass(6 * time.Minute) }},
			"token ended":               {token, func(*browser) { natstest.Pass(time.Hour) }},
		} {
			other, b := &browser{t, c, ""}, &browser{t, c, ""}
			other.signIn(ben)
			b.signIn(row.secret())
			former := b.cookie
			b.wantPageShown(what+", before", former, true)
			row.end(b)
			b.wantPageShown(what, former, false)
			check.OK(t, os.WriteFile(file, saved, 0o600))
			p.withdraw("1")
			natstest.Pass(6 * time.Minute)
			b.wantPageShown(what+", which ended", former, false)
			b.wantPageShown(what+", the other browser", other.cookie, true)
		}
	})
}
